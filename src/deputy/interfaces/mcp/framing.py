"""Read JSON-RPC messages from lines of bounded length; an invalid line becomes an error response."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, cast

from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)
from msgspec import Struct
from pydantic_core import from_json

from deputy.processes.bounded_output import MOST_PARTS, has_too_many_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp_types import JSONRPCMessage, RequestId

MOST_LINE: Final = 4 * 1024 * 1024
"""The longest message; a longer one is dropped."""
_PIECE = 64 * 1024


class NoMessage(Struct, frozen=True, kw_only=True):
    """A line that is no message, and the error response to it."""

    answer: JSONRPCError


def read_lines(source: int) -> Iterator[bytes | None]:
    """The lines without blank ones; None for a line that is too long."""
    kept = bytearray()
    is_too_long = False
    while piece := _piece(source):
        *ends, rest = piece.split(b"\n")
        for end in ends:
            if is_too_long or len(kept) + len(end) > MOST_LINE:
                yield None
            elif (kept + end).strip():
                yield bytes(kept + end)
            kept.clear()
            is_too_long = False
        is_too_long = is_too_long or len(kept) + len(rest) > MOST_LINE
        if is_too_long:
            kept.clear()
        else:
            kept += rest


def _piece(source: int) -> bytes:
    try:
        return os.read(source, _PIECE)
    except OSError:
        return b""


def read_message(line: bytes | None) -> JSONRPCMessage | NoMessage:
    """The message of a line, or the error response."""
    if line is None:
        return _no_message(INVALID_REQUEST, f"Invalid Request: a message has at most {MOST_LINE:,} bytes")
    if has_too_many_parts(line):
        return _no_message(INVALID_REQUEST, f"Invalid Request: a message is made of at most {MOST_PARTS:,} values")
    try:
        said: object = from_json(line)
    except ValueError:
        return _no_message(PARSE_ERROR, "Parse error: send one JSON message per line")
    try:
        message = jsonrpc_message_adapter.validate_python(said, by_name=False)
    except ValueError:
        return _no_message(INVALID_REQUEST, "Invalid Request: not a JSON-RPC 2.0 message", _asked_as(said))
    # A request with an invalid id reads as a notification, and would never be answered.
    if isinstance(message, JSONRPCNotification) and "id" in cast("dict[str, Any]", said):
        return _no_message(INVALID_REQUEST, "Invalid Request: an id is a string or a whole number")
    return message


def _asked_as(said: object) -> RequestId | None:
    """The id of an invalid request; None for a response, whose id is ours."""
    fields = cast("dict[str, object]", said) if isinstance(said, dict) else {}
    number = fields.get("id") if "method" in fields else None
    return number if isinstance(number, str | int) and not isinstance(number, bool) else None


def _no_message(code: int, words: str, number: RequestId | None = None) -> NoMessage:
    return NoMessage(answer=JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=code, message=words)))
