"""Codex: `codex exec --json`. Its usage counts over the whole thread, and not all its errors are fatal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import MsgspecError, Struct, json

from deputy.backends.cli.program import (
    READING,
    Fields,
    Invocation,
    ModelCommand,
    Program,
    part,
    parts,
    text_of,
    usage_of,
)
from deputy.backends.turn_recorder import minus
from deputy.core.fallback import LOGIN_FILES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.turn_recorder import TurnRecorder

_RECONNECTING = "Reconnecting"
_TOOLS: Mapping[str, str] = {
    "command_execution": "shell",
    "file_change": "apply_patch",
    "mcp_tool_call": "mcp",
    "collab_tool_call": "agent",
    "web_search": "web_search",
}


def _arguments(invocation: Invocation) -> list[str]:
    sandbox = "workspace-write" if invocation.may_write else "read-only"
    config = {
        "sandbox_mode": sandbox,
        "approval_policy": "never",
        "web_search": "live" if "WebSearch" in invocation.tools else "disabled",
        # By default its sandbox also allows writing to temporary folders.
        "sandbox_workspace_write.exclude_slash_tmp": True,
        "sandbox_workspace_write.exclude_tmpdir_env_var": True,
    }
    return [
        "exec",
        *(("resume", invocation.session) if invocation.session else ()),
        *("--json", "--skip-git-repo-check"),
        *(word for name, value in config.items() for word in ("-c", f"{name}={json.encode(value).decode()}")),
        *(("--model", invocation.model) if invocation.model else ()),
        "-",
    ]


def _read(fields: Fields, recorder: TurnRecorder) -> None:
    match fields.get("type"):
        case "thread.started":
            recorder.session = text_of(fields.get("thread_id"))
            recorder.mark_active()
        case "item.started" | "item.updated" | "item.completed":
            _item(part(fields, "item"), recorder, is_done=fields.get("type") == "item.completed")
        case "turn.completed":
            # It recovered from earlier errors.
            recorder.failure = None
            recorder.finishes()
            _apply_usage(part(fields, "usage"), recorder)
        case "turn.failed":
            recorder.finishes()
            _fail(text_of(part(fields, "error").get("message")), recorder)
        case "error":
            _fail(text_of(fields.get("message")), recorder)
        case _:
            return


def _item(item: Fields, recorder: TurnRecorder, *, is_done: bool) -> None:
    kind, call = text_of(item.get("type")), text_of(item.get("id"))
    if kind == "agent_message" and is_done:
        recorder.add_text(text_of(item.get("text")), call)
    elif kind == "error" and is_done:
        recorder.warns(text_of(item.get("message")))
    elif kind in _TOOLS:
        _tool(kind, call, item, recorder, is_done=is_done)
    else:
        recorder.mark_active()


def _tool(kind: str, call: str, item: Fields, recorder: TurnRecorder, *, is_done: bool) -> None:
    given = {name: item[name] for name in ("command", "server", "tool", "query", "changes") if name in item}
    recorder.calls(call, _TOOLS[kind], given, may_write=kind != "web_search")
    if not is_done:
        return
    code, status = item.get("exit_code"), item.get("status")
    is_error = status in ("failed", "declined") or (isinstance(code, int) and code != 0)
    recorder.gets(call, text_of(item.get("aggregated_output")), is_error=is_error, is_denied=status == "declined")
    if not is_error:
        for change in parts(item.get("changes")):
            recorder.changes(text_of(change.get("path")))


def _apply_usage(usage: Fields, recorder: TurnRecorder) -> None:
    """Set the usage of this turn: the thread's usage minus the usage before."""
    recorder.counted = usage_of(usage, "input_tokens", "output_tokens", "cached_input_tokens")
    recorder.set_total(minus(recorder.counted, recorder.before))


def _fail(message: str, recorder: TurnRecorder) -> None:
    if message.startswith(_RECONNECTING):
        recorder.retries(message)
        return
    recorder.fails(message or "no reason given", _status(message))


def _status(message: str) -> int | None:
    """The provider's status in `unexpected status 401 Unauthorized: …`."""
    digits = message.partition("status ")[2][:3]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) == 3 else None


def _settings(invocation: Invocation) -> dict[str, str]:
    """Pass the key only without a login, so that a subscription is used first."""
    home = Path(invocation.environ.get("CODEX_HOME") or f"{invocation.environ.get('HOME', '')}/.codex")
    key = invocation.environ.get("OPENAI_API_KEY", "")
    return {"CODEX_API_KEY": key} if key and not (home / "auth.json").exists() else {}


class _Model(Struct):
    """A model in the list of `codex debug models`."""

    slug: str = ""
    visibility: str = ""
    priority: int = 0


class _Catalog(Struct):
    models: list[_Model] = []


def _listed(text: str) -> list[str]:
    """The models that it offers to people, in its order of preference."""
    try:
        found = json.decode(text, type=_Catalog).models
    except MsgspecError:
        return []
    return [model.slug for model in sorted(found, key=lambda one: one.priority) if model.visibility == "list"]


PROGRAM = Program(
    name="codex",
    install="npm install -g @openai/codex",
    login="Run `codex login`, or set OPENAI_API_KEY",
    arguments=_arguments,
    read=_read,
    providers=("openai",),
    always=READING,
    package="@openai/codex",
    least_version=(0, 100),
    variables=("OPENAI_*", "CODEX_HOME", "CODEX_API_KEY", "CODEX_CA_CERTIFICATE", "AZURE_OPENAI_*"),
    settings=_settings,
    keys=("CODEX_API_KEY", "OPENAI_API_KEY"),
    login_files=LOGIN_FILES["codex"],
    # A command that ends at once is sometimes not reported.
    tells_all=False,
    logged_out=("not logged in", "missing environment variable", "please log in", "codex login"),
    session_unknown=("no rollout found", "thread/resume failed"),
    models=ModelCommand(arguments=("debug", "models"), read=_listed),
    model_missing=("no such model", "model is not supported", "does not exist or you do not have access"),
)
