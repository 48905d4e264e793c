"""Gemini CLI: `gemini --output-format stream-json`, which exits with the provider's status modulo 256."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deputy.backends.cli.program import READING, Fields, Invocation, Program, part, text_of, usage_of
from deputy.backends.program_errors import output_limit
from deputy.core.fallback import LOGIN_FILES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.backends.turn_recorder import TurnRecorder

_HARMLESS = frozenset({
    "read_file", "read_many_files", "list_directory", "grep_search", "search_file_content", "glob", "google_web_search",
    "web_fetch", "update_topic", "write_todos",
})  # fmt: skip
_WRITING = frozenset({"write_file", "replace"})
_DENIED = frozenset({"tool_not_registered", "policy_violation"})
_POLICIES = Path(__file__).with_name("policies")


def _arguments(invocation: Invocation) -> list[str]:
    # Without a person to ask, the mode `default` removes every tool that needs approval.
    mode = "yolo" if invocation.may_run else "auto_edit" if invocation.may_write else "default"
    return [
        *("--output-format", "stream-json"),
        *("--approval-mode", mode),
        *("--extensions", "none"),
        *(word for policy in policies(invocation) for word in ("--policy", policy)),
        "--skip-trust",
        *(("--model", invocation.model) if invocation.model else ()),
        *(("--resume", invocation.session) if invocation.session else ()),
    ]


def policies(invocation: Invocation) -> Iterator[str]:
    """The policy files that limit its web tools to the grant."""
    if "WebSearch" not in invocation.tools:
        yield f"{_POLICIES}/no_web_search.toml"
    if "WebFetch" in invocation.tools:
        yield f"{_POLICIES}/web_fetch.toml"


def _read(fields: Fields, recorder: TurnRecorder) -> None:
    match fields.get("type"):
        case "init":
            recorder.session, recorder.model = text_of(fields.get("session_id")), text_of(fields.get("model"))
            recorder.mark_active()
        case "message" if fields.get("role") == "assistant":
            recorder.add_text(text_of(fields.get("content")))
        case "tool_use":
            name, given = text_of(fields.get("tool_name")), part(fields, "parameters")
            path = given.get("file_path") if name in _WRITING else None
            call = text_of(fields.get("tool_id"))
            recorder.calls(call, name, given, may_write=name not in _HARMLESS, path=path)
        case "tool_result":
            problem = part(fields, "error")
            recorder.gets(
                text_of(fields.get("tool_id")),
                text_of(fields.get("output")) or text_of(problem.get("message")),
                is_error=fields.get("status") == "error",
                is_denied=problem.get("type") in _DENIED,
            )
        case "error":
            recorder.warns(text_of(fields.get("message")))
        case "result":
            _result(fields, recorder)
        case _:
            return


def _result(fields: Fields, recorder: TurnRecorder) -> None:
    recorder.finishes()
    total = usage_of(part(fields, "stats"), "input_tokens", "output_tokens", "cached")
    if total.input or total.output:
        recorder.set_total(total)
    if fields.get("status") == "error":
        error = part(fields, "error")
        message = _unwrapped(text_of(error.get("message"))) or "no reason given"
        if text_of(error.get("type")) == "FatalTurnLimitedError":
            recorder.error = output_limit("gemini", message)
        else:
            recorder.fails(message)


def _unwrapped(message: str) -> str:
    """The provider's message in `[API Error: {…}]`."""
    prefix = "[API Error: "
    return message[len(prefix) : -1] if message.startswith(prefix) and message.endswith("]") else message


def _status_of_exit(code: int) -> int | None:
    """The status from an exit code: 400 becomes 144, because an exit code is one byte."""
    return code + 256 if 400 <= code + 256 < 512 else None


PROGRAM = Program(
    name="gemini",
    install="npm install -g @google/gemini-cli",
    login="Run `gemini` and log in, or set GEMINI_API_KEY",
    arguments=_arguments,
    read=_read,
    providers=("google",),
    always=READING,
    package="@google/gemini-cli",
    least_version=(0, 30),
    variables=("GEMINI_*", "GOOGLE_*"),
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    login_files=LOGIN_FILES["gemini"],
    logged_out=("invalid auth method", "please set an auth method", "manual authorization is required"),
    session_unknown=("error resuming session", "invalid session identifier"),
    model_missing=("is not found for api version",),
    status_of_exit=_status_of_exit,
)
