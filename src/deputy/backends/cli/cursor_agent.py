"""Cursor's agent: `cursor-agent -p`, whose stream of JSON lines is much like Claude Code's."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from deputy.core.fallback import LOGIN_FILES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deputy.backends.turn_recorder import TurnRecorder

_HARMLESS = frozenset({"read", "ls", "grep", "glob", "semSearch", "webSearch", "fetch", "todo", "updateTodos"})
_WRITING = frozenset({"write", "edit", "delete"})
_THEIRS: Mapping[str, str] = {
    "anthropic:claude-opus-4-6": "opus-4.6",
    "anthropic:claude-sonnet-4-5": "sonnet-4.5",
    "openai:gpt-5.2": "gpt-5.2",
    "google:gemini-3.1-pro-preview": "gemini-3-pro",
}


def _arguments(invocation: Invocation) -> list[str]:
    return [
        "-p",
        *("--output-format", "stream-json"),
        "--trust",
        # It has only two choices: `--force` allows everything, the mode `ask` only reading.
        *(("--force",) if invocation.may_run else ("--mode", "ask")),
        *(("--model", invocation.model) if invocation.model else ()),
        *(("--resume", invocation.session) if invocation.session else ()),
    ]


def _read(fields: Fields, recorder: TurnRecorder) -> None:
    session = fields.get("session_id")
    if isinstance(session, str):
        recorder.session = session
    match fields.get("type"):
        case "system":
            recorder.model = text_of(fields.get("model")) or recorder.model
            recorder.mark_active()
        case "assistant":
            for block in parts(part(fields, "message").get("content")):
                recorder.add_text(text_of(block.get("text")))
        case "tool_call":
            _tool(fields, recorder)
        case "result":
            _result(fields, recorder)
        case _:
            recorder.mark_active()


def _tool(fields: Fields, recorder: TurnRecorder) -> None:
    """Record `{"readToolCall": {"args": …, "result": {"success": …}}}`, sent at the start and at the end of a call."""
    calls = part(fields, "tool_call")
    key = next((key for key in calls if key.endswith("ToolCall")), "")
    name, call = key.removesuffix("ToolCall") or "tool", text_of(fields.get("call_id"))
    given, result = part(calls, key, "args"), part(calls, key, "result")
    path = given.get("path") if name in _WRITING else None
    recorder.calls(call, name, given, may_write=name not in _HARMLESS, path=path)
    if fields.get("subtype") == "completed":
        denied = "rejected" in result or "permissionDenied" in result
        success = part(result, "success")
        recorder.gets(call, text_of(success.get("content")), is_error="success" not in result, is_denied=denied)


def _result(fields: Fields, recorder: TurnRecorder) -> None:
    recorder.finishes()
    usage, text = part(fields, "usage"), text_of(fields.get("result"))
    if usage:
        cached = ("cacheReadTokens", "cacheWriteTokens")
        recorder.set_total(usage_of(usage, "inputTokens", "outputTokens", "cacheReadTokens", *cached))
    if fields.get("is_error") is True or fields.get("subtype") not in ("success", None):
        recorder.fails(text or "no reason given")


def _cannot_hold(invocation: Invocation) -> str:
    return "writing files without running commands" if invocation.may_write and not invocation.may_run else ""


def _is_version(version: str) -> bool:
    """Its versions are dates; those of an npm package with the same name are not."""
    return version.lstrip("v")[:2] == "20" and version.lstrip("v")[4:5] == "."


def _listed(text: str) -> Iterator[str]:
    """The names in `cursor-agent models`: lines such as `auto - Auto (default)`."""
    named = (line.strip().partition(" - ") for line in text.splitlines())
    return (name for name, dash, _ in named if dash and " " not in name)


PROGRAM = Program(
    name="cursor-agent",
    install="Cursor's own installer; the npm package of this name is another program",
    login="Run `cursor-agent login`, or set CURSOR_API_KEY",
    arguments=_arguments,
    read=_read,
    model_names=_THEIRS,
    always=READING,
    cannot_hold=_cannot_hold,
    is_version=_is_version,
    least_version=(2026,),
    variables=("CURSOR_*",),
    keys=("CURSOR_API_KEY",),
    login_files=LOGIN_FILES["cursor-agent"],
    logged_out=("not logged in", "authentication required", "cursor-agent login", "agent login"),
    session_unknown=("chat not found", "session not found"),
    models=ModelCommand(arguments=("models",), read=_listed, proves_login=True),
    model_missing=("cannot use this model", "named models unavailable", "model not available", "unknown model"),
)
