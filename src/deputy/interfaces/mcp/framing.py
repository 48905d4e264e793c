"""What comes in over standard input: lines of bounded length, each a message or the answer to what is none."""

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

from deputy.tools.json_parts import MOST_PARTS, has_too_many_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp_types import JSONRPCMessage, RequestId

MOST_LINE: Final = 4 * 1024 * 1024
"""The longest message that is read; of a longer one nothing is kept."""
_PIECE = 64 * 1024


class NoMessage(Struct, frozen=True, kw_only=True):
    """Something that is no message, and what whoever sent it is told."""

    answer: JSONRPCError


def read_lines(source: int) -> Iterator[bytes | None]:
    """The lines that come in, blank ones left out; None for one that is too long."""
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
    """The message of a line, or what to answer where it is none."""
    if line is None:
        return _no_message(INVALID_REQUEST, f"Invalid Request: a message has at most {MOST_LINE:,} bytes")
    if has_too_many_parts(line):
        return _no_message(INVALID_REQUEST, f"Invalid Request: a message is made of at most {MOST_PARTS:,} values")
    try:
        said: object = from_json(line)
    except ValueError:
        return _no_message(PARSE_ERROR, "Parse error: a line holds one message, as JSON")
    try:
        message = jsonrpc_message_adapter.validate_python(said, by_name=False)
    except ValueError:
        return _no_message(INVALID_REQUEST, "Invalid Request: it is no JSON-RPC 2.0 message", _asked_as(said))
    # Read as a notification, a request whose id cannot be one would never be answered.
    if isinstance(message, JSONRPCNotification) and "id" in cast("dict[str, Any]", said):
        return _no_message(INVALID_REQUEST, "Invalid Request: an id is a string or a whole number")
    return message


def _asked_as(said: object) -> RequestId | None:
    """The id that a request gave itself; a response names one of ours, which is not answered under it."""
    fields = cast("dict[str, object]", said) if isinstance(said, dict) else {}
    number = fields.get("id") if "method" in fields else None
    return number if isinstance(number, str | int) and not isinstance(number, bool) else None


def _no_message(code: int, words: str, number: RequestId | None = None) -> NoMessage:
    return NoMessage(answer=JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=code, message=words)))
