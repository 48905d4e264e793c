"""Claude Code as a program: `claude -p`, its Agent tool, and the limits that its environment variables set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TITLE = "Claude Code"
PROGRAMS = Path(__file__).resolve().parents[2] / "build" / "programs" / "node_modules" / ".bin"
SESSION = "11111111-2222-4333-8444-555555555555"
DOLLARS = 0.00345
"""The cost of a model call in the scenario of the budget: 1,000 tokens in, 30 out."""
_REQUESTS_ONLY = "a silent request has a time limit; a request that sends something, and a subagent, have none"
LACKS = {
    "pings": _REQUESTS_ONLY,
    "drips": _REQUESTS_ONLY,
    "babble": _REQUESTS_ONLY,
    "seconds": "a run has no deadline",
    "own_tool": "own tools come from MCP servers, which answer with errors",
    "evidence": "no check of files that a report names",
    "text_calls": "a call written as text is the answer",
    "approval": "without a terminal no person is asked",
    "redaction": "results are shown as they are",
    "program_fan_out": "a program starts one run at a time",
    "cycle": "no check for repeated tasks, only a limit of the depth",
    "renamed-self": "no check for repeated tasks, only a limit of the depth",
}


def command(plan: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command of a trial, and its environment."""
    limits = plan["limits"]
    env = {
        "PATH": f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin",
        "ANTHROPIC_BASE_URL": plan["url"],
        "ANTHROPIC_API_KEY": "test-key-anthropic",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "IS_SANDBOX": "1",
    }
    if "child_seconds" in limits:
        # The limits that it has are for requests: it has none for a subagent.
        millis = str(int(limits["child_seconds"] * 1000))
        env |= {"API_TIMEOUT_MS": millis, "CLAUDE_STREAM_IDLE_TIMEOUT_MS": millis, "CLAUDE_CODE_MAX_RETRIES": "0"}
        env |= {"CLAUDE_STREAM_FIRST_BYTE_TIMEOUT_MS": millis, "CLAUDE_ENABLE_STREAM_WATCHDOG": "1"}
        env |= {"BASH_DEFAULT_TIMEOUT_MS": millis}
    if "depth" in limits:
        env["CLAUDE_CODE_MAX_SUBAGENT_SPAWN_DEPTH"] = str(limits["depth"])
    if "spawns" in limits:
        env["CLAUDE_CODE_MAX_CONCURRENT_SUBAGENTS"] = str(limits["spawns"])
    argv = [str(PROGRAMS / "claude"), "-p", "--output-format", "json", "--model", "claude-sonnet-4-5"]
    argv += ["--allowedTools", "Read,Bash,Agent,Task"]
    argv += ["--max-budget-usd", f"{limits['requests'] * DOLLARS:.5f}"] if "requests" in limits else []
    argv += ["--resume", SESSION, "Go on."] if plan["is_resumed"] else ["--session-id", SESSION, plan["prompt"]]
    return argv, env


def dialect(plan: dict[str, Any]) -> dict[str, Any]:
    """How a model calls its tools."""
    task = {"description": "look into {label}", "prompt": "{prompt}", "subagent_type": "general-purpose"}
    return {
        "delegate": {"name": "Agent", "arguments": {**task, "run_in_background": False}},
        "read": {"name": "Read", "arguments": {"file_path": f"{plan['workspace']}/{{path}}"}},
        "shell": {"name": "Bash", "arguments": {"command": "{command}", "description": "Run it"}},
    }
