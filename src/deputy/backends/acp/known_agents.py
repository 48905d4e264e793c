"""The known ACP agents."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec import json, structs

from deputy.backends.acp.agent import AcpAgent, says_nothing
from deputy.backends.cli import claude, codex, gemini, opencode
from deputy.backends.cli.program import READING, Invocation, Program
from deputy.core.fallback import LOGIN_FILES

if TYPE_CHECKING:
    from collections.abc import Mapping


def _no_arguments(_order: Invocation) -> list[str]:
    return []


# --- claude -----------------------------------------------------------------------------------------------------------


def _claude_settings(invocation: Invocation) -> dict[str, str]:
    model = {"ANTHROPIC_MODEL": invocation.model} if invocation.model else {}
    # As root it exits at once unless IS_SANDBOX is set.
    sandbox = {"IS_SANDBOX": "1"} if os.geteuid() == 0 else {}
    return {**claude.PROGRAM.settings(invocation), **model, **sandbox, "NO_BROWSER": "1"}


def _claude_meta(invocation: Invocation) -> Mapping[str, Any]:
    """Only the granted tools, and no settings of the project."""
    tools = [theirs for ours, theirs in claude.TOOLS.items() if ours in invocation.tools]
    return {"claudeCode": {"options": {"tools": tools, "settingSources": ["user"], "strictMcpConfig": True}}}


CLAUDE = AcpAgent(
    name="claude",
    program=structs.replace(
        claude.PROGRAM,
        name="claude-agent-acp",
        install="npm install -g @agentclientprotocol/claude-agent-acp",
        arguments=_no_arguments,
        read=says_nothing,
        package="@agentclientprotocol/claude-agent-acp",
        least_version=(),
        variables=(*claude.PROGRAM.variables, "IS_SANDBOX", "CLAUDE_CODE_EXECUTABLE"),
        settings=_claude_settings,
        session_unknown=("no conversation found", "session not found", "resource not found"),
    ),
    mode=lambda _: "default",
    meta=_claude_meta,
    takes_model=True,
)


# --- codex ------------------------------------------------------------------------------------------------------------


def _codex_mode(invocation: Invocation) -> str:
    """The default mode would write and run commands without asking."""
    return "workspace-write" if invocation.may_write else "read-only"


def _codex_settings(invocation: Invocation) -> dict[str, str]:
    config: dict[str, Any] = {
        "web_search": "live" if "WebSearch" in invocation.tools else "disabled",
        "sandbox_workspace_write": {"exclude_slash_tmp": True, "exclude_tmpdir_env_var": True},
    }
    if invocation.model:
        config["model"] = invocation.model
    return {
        **codex.PROGRAM.settings(invocation),
        "CODEX_CONFIG": json.encode(config).decode(),
        "INITIAL_AGENT_MODE": _codex_mode(invocation),
        "NO_BROWSER": "1",
    }


CODEX = AcpAgent(
    name="codex",
    program=structs.replace(
        codex.PROGRAM,
        name="codex-acp",
        install="npm install -g @agentclientprotocol/codex-acp",
        arguments=_no_arguments,
        read=says_nothing,
        package="@agentclientprotocol/codex-acp",
        least_version=(),
        variables=(*codex.PROGRAM.variables, "CODEX_PATH", "MODEL_PROVIDER"),
        settings=_codex_settings,
    ),
    mode=_codex_mode,
    keyed_logins={"api-key": ("CODEX_API_KEY", "OPENAI_API_KEY")},
    fails_in_words=True,
    takes_model=True,
)


# --- gemini and qwen, a fork of gemini --------------------------------------------------------------------------------


def _gemini_arguments(invocation: Invocation) -> list[str]:
    return [
        "--acp",
        *("--approval-mode", "default"),
        *("--extensions", "none"),
        *(word for policy in gemini.policies(invocation) for word in ("--policy", policy)),
        "--skip-trust",
        *(("--model", invocation.model) if invocation.model else ()),
    ]


GEMINI = AcpAgent(
    name="gemini",
    program=structs.replace(
        gemini.PROGRAM,
        arguments=_gemini_arguments,
        read=says_nothing,
        session_unknown=(*gemini.PROGRAM.session_unknown, "session not found", "no previous sessions"),
    ),
    mode=lambda _: "default",
    keyed_logins={"gemini-api-key": ("GEMINI_API_KEY",)},
    missing_is_empty=True,
    takes_model=True,
)

_QWEN_TOOLS = {
    "Edit": ("edit", "notebook_edit"), "Write": ("write_file",), "Run": ("run_shell_command",),
    "WebFetch": ("web_fetch",), "WebSearch": ("web_search",),
}  # fmt: skip


def _qwen_arguments(invocation: Invocation) -> list[str]:
    """Tools that are not granted are left out: one that is refused would end its turn."""
    return [
        "--acp",
        *("--approval-mode", "default"),
        *("--extensions", "none"),
        *_withheld("--exclude-tools", _QWEN_TOOLS, invocation),
        *(("--model", invocation.model) if invocation.model else ()),
    ]


def _withheld(flag: str, tools: Mapping[str, tuple[str, ...]], invocation: Invocation) -> list[str]:
    """Flags that exclude tools which are not granted."""
    return [f"{flag}={theirs}" for ours, names in tools.items() if ours not in invocation.tools for theirs in names]


QWEN = AcpAgent(
    name="qwen",
    program=Program(
        name="qwen",
        install="npm install -g @qwen-code/qwen-code",
        login="Run `qwen` and log in, or set OPENAI_API_KEY and OPENAI_BASE_URL",
        arguments=_qwen_arguments,
        read=says_nothing,
        providers=("qwen",),
        always=READING,
        package="@qwen-code/qwen-code",
        least_version=(0, 15),
        variables=("QWEN_*", "DASHSCOPE_*", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"),
        keys=("DASHSCOPE_API_KEY",),
        login_files=LOGIN_FILES["qwen"],
        logged_out=("please set an auth method", "no auth type is selected", "use the qwen code cli to authenticate"),
        session_unknown=("session not found",),
    ),
    mode=lambda _: "default",
    keyed_logins={"openai": ("OPENAI_API_KEY",)},
    takes_model=True,
)


# --- opencode and copilot ---------------------------------------------------------------------------------------------


def _opencode_arguments(_order: Invocation) -> list[str]:
    return ["acp"]


OPENCODE = AcpAgent(
    name="opencode",
    program=structs.replace(opencode.PROGRAM, arguments=_opencode_arguments, read=says_nothing),
)

_COPILOT_TOOLS = {
    "Edit": ("edit", "apply_patch"), "Write": ("create",), "Run": ("bash",), "WebFetch": ("web_fetch",),
    "WebSearch": ("web_search",),
}  # fmt: skip


def _copilot_arguments(invocation: Invocation) -> list[str]:
    """Tools that are not granted are left out: one that is refused would end its turn."""
    return [
        "--acp",
        "--disable-builtin-mcps",
        "--no-auto-update",
        *_withheld("--excluded-tools", _COPILOT_TOOLS, invocation),
        *(("--model", invocation.model) if invocation.model else ()),
    ]


COPILOT = AcpAgent(
    name="copilot",
    program=Program(
        name="copilot",
        install="npm install -g @github/copilot",
        login="Run `copilot` and `/login`, or set COPILOT_GITHUB_TOKEN",
        arguments=_copilot_arguments,
        read=says_nothing,
        always=READING,
        package="@github/copilot",
        variables=("COPILOT_*", "GH_TOKEN", "GITHUB_TOKEN"),
        keys=("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"),
        logged_out=(
            "not authenticated",
            "no authentication information found",
            "authentication required",
            "authentication failed",
        ),
        session_unknown=("session not found",),
        model_missing=("not found on provider",),
    ),
    fails_in_words=True,
    notice="Info: ",
    takes_model=True,
)

AGENTS: Mapping[str, AcpAgent] = {agent.name: agent for agent in (CLAUDE, CODEX, GEMINI, OPENCODE, COPILOT, QWEN)}
"""The agents by name."""
