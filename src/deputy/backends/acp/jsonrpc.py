"""Messages of the Agent Client Protocol: JSON-RPC, one per line; input is untrusted."""

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
    """A request of the agent; without an id it is a notification."""

    method: str
    params: Fields
    id: str | int | None = None


class RpcResult(Struct, frozen=True):
    """The result of one of our requests."""

    id: int
    result: Fields


class RpcError(Struct, frozen=True):
    """The error of one of our requests."""

    id: int
    code: int
    message: str


Message: TypeAlias = RpcRequest | RpcResult | RpcError


def read(line: bytes) -> Message | None:
    """Parse a line; None when it is not a message."""
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
    """Encode a request."""
    return _line({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def notification(method: str, params: Fields) -> bytes:
    """Encode a notification."""
    return _line({"jsonrpc": "2.0", "method": method, "params": params})


def answer(number: str | int, result: Fields) -> bytes:
    """Encode a result."""
    return _line({"jsonrpc": "2.0", "id": number, "result": result})


def refusal(number: str | int, code: int, message: str) -> bytes:
    """Encode an error."""
    return _line({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}})


def _line(fields: Fields) -> bytes:
    try:
        return json.encode(fields) + b"\n"
    except (UnicodeError, ValueError):
        # A text contains a lone surrogate.
        return json.encode(_clean(fields)) + b"\n"


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {name: _clean(item) for name, item in cast("Fields", value).items()}
    return [_clean(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _words(error: Fields) -> str:
    """The message and data of an error: agents differ in where they put the reason."""
    data = error.get("data")
    texts = [text_of(error.get("message"))]
    if isinstance(data, str):
        texts.append(data)
    elif isinstance(data, dict):
        texts += [value for value in cast("Fields", data).values() if isinstance(value, str)]
    return ": ".join(text for text in texts if text)[:_MESSAGE_LENGTH]
