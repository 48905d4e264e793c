"""The description of an ACP agent, and the known agents."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

from msgspec import Struct, json, structs

from deputy.backends.cli import claude, codex, gemini, opencode
from deputy.backends.cli.program import READING, Invocation, ModelCommand, Program
from deputy.core.fallback import LOGIN_FILES


class AcpAgent(Struct, frozen=True, kw_only=True):
    """One agent: its program, and how it is limited to a grant."""

    name: str
    """As in `acp:<name>`."""
    program: Program
    mode: Callable[[Invocation], str] = lambda _: ""
    """The mode in which it asks before each action or cannot exceed the grant; empty if it has no modes."""
    meta: Callable[[Invocation], Mapping[str, Any]] = lambda _: {}
    """The `_meta` field of a new session."""
    keyed_logins: Mapping[str, tuple[str, ...]] = {}
    """Logins without a person: by their ids, the variables that can have the key."""
    missing_is_empty: bool = False
    """Whether a missing file is read as an empty one: after a refusal it would not create the file."""
    fails_in_words: bool = False
    """Whether it reports a provider's failure as its answer, with a usage of zero."""
    notice: str = ""
    """The beginning of messages that are not part of the answer."""
    takes_model: bool = False
    """Whether the model is an argument of its program; else it is set in the session."""


def _adapter(program: Program, name: str, settings: Callable[[Invocation], Mapping[str, str]], *more: str) -> Program:
    """The program of an npm package that speaks the protocol for a command-line program."""
    package = f"@agentclientprotocol/{name}"
    return structs.replace(
        program,
        name=name,
        install=f"npm install -g {package}",
        arguments=_always(),
        package=package,
        least_version=(),
        models=None,
        variables=(*program.variables, *more),
        settings=settings,
    )


def _always(*words: str) -> Callable[[Invocation], list[str]]:
    return lambda _: list(words)


def _arguments(invocation: Invocation, *fixed: str) -> list[str]:
    return ["--acp", *fixed, *(("--model", invocation.model) if invocation.model else ())]


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
        _adapter(claude.PROGRAM, "claude-agent-acp", _claude_settings, "IS_SANDBOX", "CLAUDE_CODE_EXECUTABLE"),
        session_unknown=("no conversation found", "session not found", "resource not found"),
    ),
    mode=lambda _: "default",
    meta=_claude_meta,
    takes_model=True,
)


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
    program=_adapter(codex.PROGRAM, "codex-acp", _codex_settings, "CODEX_PATH", "MODEL_PROVIDER"),
    mode=_codex_mode,
    keyed_logins={"api-key": ("CODEX_API_KEY", "OPENAI_API_KEY")},
    fails_in_words=True,
    takes_model=True,
)


_ASKING = ("--approval-mode", "default", "--extensions", "none")


def _gemini_arguments(invocation: Invocation) -> list[str]:
    policies = (word for policy in gemini.policies(invocation) for word in ("--policy", policy))
    return _arguments(invocation, *_ASKING, *policies, "--skip-trust")


GEMINI = AcpAgent(
    name="gemini",
    program=structs.replace(
        gemini.PROGRAM,
        arguments=_gemini_arguments,
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
    return _arguments(invocation, *_ASKING, *_withheld("--exclude-tools", _QWEN_TOOLS, invocation))


def _withheld(flag: str, tools: Mapping[str, tuple[str, ...]], invocation: Invocation) -> list[str]:
    """Flags that exclude the tools that are not granted: a refused tool would end the turn."""
    return [f"{flag}={theirs}" for ours, names in tools.items() if ours not in invocation.tools for theirs in names]


QWEN = AcpAgent(
    name="qwen",
    program=Program(
        name="qwen",
        install="npm install -g @qwen-code/qwen-code",
        login="Run `qwen` and log in, or set OPENAI_API_KEY and OPENAI_BASE_URL",
        arguments=_qwen_arguments,
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


OPENCODE = AcpAgent(
    name="opencode",
    program=structs.replace(opencode.PROGRAM, arguments=_always("acp")),
)

_COPILOT_TOOLS = {
    "Edit": ("edit", "apply_patch"), "Write": ("create",), "Run": ("bash",), "WebFetch": ("web_fetch",),
    "WebSearch": ("web_search",),
}  # fmt: skip


def _copilot_arguments(invocation: Invocation) -> list[str]:
    withheld = _withheld("--excluded-tools", _COPILOT_TOOLS, invocation)
    return _arguments(invocation, "--disable-builtin-mcps", "--no-auto-update", *withheld)


def _copilot_models(text: str) -> list[str]:
    """The names in `copilot help config`: a list of quoted names below the setting `model`."""
    _, found, rest = text.partition("\n  `model`:")
    lines = [line.strip() for line in rest.splitlines()[1:]] if found else []
    listed = takewhile(lambda line: line.startswith('- "') and line.endswith('"'), lines)
    return [line[3:-1] for line in listed]


COPILOT = AcpAgent(
    name="copilot",
    program=Program(
        name="copilot",
        install="npm install -g @github/copilot",
        login="Run `copilot` and `/login`, or set COPILOT_GITHUB_TOKEN",
        arguments=_copilot_arguments,
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
        models=ModelCommand(arguments=("help", "config"), read=_copilot_models),
    ),
    fails_in_words=True,
    notice="Info: ",
    takes_model=True,
)

AGENTS: Mapping[str, AcpAgent] = {agent.name: agent for agent in (CLAUDE, CODEX, GEMINI, OPENCODE, COPILOT, QWEN)}
"""The agents by name."""
