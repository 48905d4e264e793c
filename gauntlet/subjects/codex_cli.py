"""Codex as a program: `codex exec`, its spawn_agent tool, and the limits of its config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TITLE = "Codex"
PROGRAMS = Path(__file__).resolve().parents[2] / "build" / "programs" / "node_modules" / ".bin"
SPACE = "multi_agent_v1"
LACKS = {
    "seconds": "a run has no deadline",
    "child_seconds": "a wait for subagents ends after 10 seconds or more; a subagent has no time limit",
    "requests": "no limit on model calls",
    "own_tool": "own tools come from MCP servers, which answer with errors",
    "evidence": "no check of files that a report names",
    "text_calls": "a call written as text is the answer",
    "approval": "without a terminal no person is asked",
    "redaction": "results are shown as they are",
    "program_fan_out": "a program starts one run at a time",
    "cycle": "no check for repeated tasks, only a limit of the depth",
    "renamed-self": "no check for repeated tasks, only a limit of the depth",
}
CONFIG = """
model = "gpt-5.2"
model_provider = "here"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
multi_agent = true

[agents]
max_threads = {threads}
max_depth = {depth}

[model_providers.here]
name = "here"
base_url = "{url}/v1"
env_key = "HERE_KEY"
wire_api = "responses"
"""


def command(plan: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command of a trial, and its environment."""
    limits = plan["limits"]
    folder = Path(plan["home"]) / ".codex"
    folder.mkdir(exist_ok=True)
    config = CONFIG.format(url=plan["url"], depth=limits.get("depth", 1), threads=limits.get("spawns", 12))
    (folder / "config.toml").write_text(config)
    env = {"PATH": f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin", "HERE_KEY": "test-key", "CODEX_HOME": str(folder)}
    argv = [str(PROGRAMS / "codex"), "exec", "--json", "--skip-git-repo-check"]
    if plan["is_resumed"]:
        thread = json.loads((Path(plan["place"]) / "output.txt").read_text().partition("\n")[0])["thread_id"]
        return [*argv, "resume", thread, "Go on."], env
    return [*argv, plan["prompt"]], env


def dialect(plan: dict[str, Any]) -> dict[str, Any]:
    """How a model calls its tools."""
    return {
        "delegate": {"namespace": SPACE, "name": "spawn_agent", "arguments": {"message": "{prompt}"}},
        "wait": {"namespace": SPACE, "name": "wait_agent", "arguments": {"targets": "{agents}", "timeout_ms": 30000}},
        "read": {"name": "exec_command", "arguments": {"cmd": "cat {path}"}},
        "shell": {"name": "exec_command", "arguments": {"cmd": "{command}"}},
    }
