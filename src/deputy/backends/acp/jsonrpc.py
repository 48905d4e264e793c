"""Messages of the Agent Client Protocol: JSON-RPC, one message a line, read as if written by an enemy."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct, json

from deputy.backends.cli.program import Fields, part, text_of

PROTOCOL = 1
AUTH_REQUIRED = -32000
NOT_FOUND = -32002
INVALID_PARAMS = -32602
NO_SUCH_METHOD = -32601
_MESSAGE_LENGTH = 4000


class RpcRequest(Struct, frozen=True):
    """The agent wants something; without an id it only tells."""

    method: str
    params: Fields
    id: str | int | None = None


class RpcResult(Struct, frozen=True):
    """The agent's answer to one of our requests."""

    id: int
    result: Fields


class RpcError(Struct, frozen=True):
    """The agent's refusal of one of our requests."""

    id: int
    code: int
    message: str


Message: TypeAlias = RpcRequest | RpcResult | RpcError


def read(line: bytes) -> Message | None:
    """A line as a message, if it is one."""
    if line.lstrip()[:1] != b"{":
        return None
    try:
        value: Any = json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    fields = cast("Fields", value)
    method, number = fields.get("method"), fields.get("id")
    if isinstance(method, str):
        return RpcRequest(method, part(fields, "params"), number if isinstance(number, str | int) else None)
    if not isinstance(number, int):
        return None
    if "error" in fields:
        error = part(fields, "error")
        code = error.get("code")
        return RpcError(number, code if isinstance(code, int) else 0, _words(error))
    return RpcResult(number, part(fields, "result")) if "result" in fields else None


def request(number: int, method: str, params: Fields) -> bytes:
    """A request of ours."""
    return _line({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def notification(method: str, params: Fields) -> bytes:
    """Something that we only tell."""
    return _line({"jsonrpc": "2.0", "method": method, "params": params})


def answer(number: str | int, result: Fields) -> bytes:
    """What the agent asked for."""
    return _line({"jsonrpc": "2.0", "id": number, "result": result})


def refusal(number: str | int, code: int, message: str) -> bytes:
    """Why the agent does not get what it asked for."""
    return _line({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}})


def _line(fields: Fields) -> bytes:
    try:
        return json.encode(fields) + b"\n"
    except (UnicodeError, ValueError):
        # A lone surrogate, in a text from elsewhere.
        return json.encode(_clean(fields)) + b"\n"


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {name: _clean(item) for name, item in cast("Fields", value).items()}
    return [_clean(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _words(error: Fields) -> str:
    """All that an error says: what matters stands in its message with some agents and in its data with others."""
    data = error.get("data")
    said = [text_of(error.get("message"))]
    if isinstance(data, str):
        said.append(data)
    elif isinstance(data, dict):
        said += [value for value in cast("Fields", data).values() if isinstance(value, str)]
    return ": ".join(text for text in said if text)[:_MESSAGE_LENGTH]
