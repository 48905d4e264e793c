"""Codex: `codex exec --json`, whose usage counts over the whole thread and whose errors are not all fatal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import json

from deputy.backends.cli.program import READING, Fields, Order, Program, number_of, part, parts, text_of
from deputy.core.login_files import LOGIN_FILES
from deputy.core.outcome import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.told import Told

_RECONNECTING = "Reconnecting"
_TOOLS: Mapping[str, str] = {
    "command_execution": "shell",
    "file_change": "apply_patch",
    "mcp_tool_call": "mcp",
    "collab_tool_call": "agent",
    "web_search": "web_search",
}


def _arguments(order: Order) -> list[str]:
    sandbox = "workspace-write" if order.may_write else "read-only"
    config = {
        "sandbox_mode": sandbox,
        "approval_policy": "never",
        "web_search": "live" if "WebSearch" in order.tools else "disabled",
        # Its sandbox would let it write to the places of temporary files too.
        "sandbox_workspace_write.exclude_slash_tmp": True,
        "sandbox_workspace_write.exclude_tmpdir_env_var": True,
    }
    return [
        "exec",
        *(("resume", order.session) if order.session else ()),
        *("--json", "--skip-git-repo-check"),
        *(word for name, value in config.items() for word in ("-c", f"{name}={json.encode(value).decode()}")),
        *(("--model", order.model) if order.model else ()),
        "-",
    ]


def _read(fields: Fields, told: Told, order: Order) -> None:
    match fields.get("type"):
        case "thread.started":
            told.session = text_of(fields.get("thread_id"))
            told.stirs()
        case "item.started" | "item.updated" | "item.completed":
            _item(part(fields, "item"), told, order, is_done=fields.get("type") == "item.completed")
        case "turn.completed":
            # Whatever went wrong on the way, it got over it.
            told.failure = None
            told.finishes()
            _settle(part(fields, "usage"), told)
        case "turn.failed":
            told.finishes()
            _fail(text_of(part(fields, "error").get("message")), told)
        case "error":
            _fail(text_of(fields.get("message")), told)
        case _:
            return


def _item(item: Fields, told: Told, order: Order, *, is_done: bool) -> None:
    kind, call = text_of(item.get("type")), text_of(item.get("id"))
    if kind == "agent_message" and is_done:
        told.says(text_of(item.get("text")), call)
    elif kind == "error" and is_done:
        told.warns(text_of(item.get("message")))
    elif kind in _TOOLS:
        _tool(kind, call, item, told, order, is_done=is_done)
    else:
        told.stirs()


def _tool(kind: str, call: str, item: Fields, told: Told, order: Order, *, is_done: bool) -> None:
    given = {name: item[name] for name in ("command", "server", "tool", "query", "changes") if name in item}
    told.calls(call, _TOOLS[kind], given, may_write=order.may_write and kind != "web_search")
    if not is_done:
        return
    code, status = item.get("exit_code"), item.get("status")
    is_error = status in ("failed", "declined") or (isinstance(code, int) and code != 0)
    told.gets(call, text_of(item.get("aggregated_output")), is_error=is_error, is_denied=status == "declined")
    if not is_error:
        for change in parts(item.get("changes")):
            told.changes(text_of(change.get("path")))


def _settle(usage: Fields, told: Told) -> None:
    """What this turn took of what the whole thread has."""
    counted = Usage(
        input=number_of(usage.get("input_tokens")),
        output=number_of(usage.get("output_tokens")),
        cached=number_of(usage.get("cached_input_tokens")),
        cost=None,
    )
    told.counted = counted
    told.settles(
        Usage(
            input=max(0, counted.input - told.before.input),
            output=max(0, counted.output - told.before.output),
            cached=max(0, counted.cached - told.before.cached),
            requests=1,
            cost=None,
        )
    )


def _fail(message: str, told: Told) -> None:
    if message.startswith(_RECONNECTING):
        told.retries(message)
        return
    told.fails(message or "no reason given", _status(message))


def _status(message: str) -> int | None:
    """The provider's status in `unexpected status 401 Unauthorized: …`."""
    digits = message.partition("status ")[2][:3]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) == 3 else None


def _settings(order: Order) -> dict[str, str]:
    """A key is offered only where nobody is logged in: a subscription is not to be passed by."""
    home = Path(order.environ.get("CODEX_HOME") or f"{order.environ.get('HOME', '')}/.codex")
    key = order.environ.get("OPENAI_API_KEY", "")
    return {"CODEX_API_KEY": key} if key and not (home / "auth.json").exists() else {}


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
    # A command that ends at once is sometimes not told of.
    tells_all=False,
    logged_out=("not logged in", "missing environment variable", "please log in", "codex login"),
    session_unknown=("no rollout found", "thread/resume failed"),
    model_missing=("no such model", "model is not supported", "does not exist or you do not have access"),
)
