"""Serve MCP over standard input and output: bounded in memory, quick to stop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from msgspec import Struct
from pydantic_core import from_json

from deputy.core.visible_text import visible_json_of
from deputy.interfaces.background import background
from deputy.interfaces.stdio_streams import MOST_LINE, MOST_UNWRITTEN, StdioReader, StdioWriter, own_streams
from deputy.processes.bounded_output import MOST_PARTS, has_too_many_parts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.server import Server
    from mcp_types import JSONRPCMessage, RequestId

    from deputy.interfaces.mcp.server_state import ServerState


async def serve_stdio(server: Server[Any], server_state: ServerState, stop: asyncio.Event) -> None:
    """Serve one client until it leaves or `stop` is set."""
    server_state.sends_answers = True
    with own_streams() as (source, sink):
        async with anyio.create_task_group() as group:

            async def stopped() -> None:
                await stop.wait()
                server_state.is_leaving = True
                group.cancel_scope.cancel()

            group.start_soon(stopped)
            async with _streams(server_state, source, sink) as (incoming, outgoing):
                await server.run(incoming, outgoing, server.create_initialization_options())
            group.cancel_scope.cancel()


@asynccontextmanager
async def _streams(
    server_state: ServerState, source: int, sink: int
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Any], MemoryObjectSendStream[Any]]]:
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    wire = _Wire(server_state, to_server, outgoing)
    async with background(wire.write_all(sink, from_server)):
        wire.read_all(source)
        try:
            yield incoming, outgoing
        finally:
            wire.close()


class _Wire:
    """Passes messages between two file descriptors and the server; blocking calls run in threads."""

    def __init__(
        self, server_state: ServerState, to_server: MemoryObjectSendStream[Any], outgoing: MemoryObjectSendStream[Any]
    ) -> None:
        self._server_state = server_state
        self._to_server = to_server
        self._outgoing = outgoing
        self._written = asyncio.Event()
        self._count = 0

    def close(self) -> None:
        """The client has left; interrupted calls count as not cancelled."""
        self._server_state.is_leaving = True
        self._to_server.close()

    # --- in -----------------------------------------------------------------------------------------------------------

    def read_all(self, source: int) -> None:
        """Read until the client closes its side, in a daemon thread."""
        StdioReader(source, lambda: self._count, self.close).start(read_message, self._receive)

    async def _receive(self, said: JSONRPCMessage | NoMessage) -> None:
        while self._outgoing.statistics().tasks_waiting_send >= MOST_UNWRITTEN:
            self._written.clear()
            await self._written.wait()
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            match said:
                case NoMessage(answer=answer):
                    await self._outgoing.send(SessionMessage(answer))
                case message:
                    await self._to_server.send(SessionMessage(message))

    # --- out ----------------------------------------------------------------------------------------------------------

    async def write_all(self, sink: int, messages: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write the server's messages."""
        writer = StdioWriter(sink)
        async with messages:
            async for one in messages:
                text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
                if not await writer.put(visible_json_of(text.encode()) + b"\n", partial(self._wrote, one.message)):
                    self.close()
                    return

    def _wrote(self, message: JSONRPCMessage) -> None:
        self._written.set()
        self._count += 1
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._server_state.answered(message.id)


# --- messages ---------------------------------------------------------------------------------------------------------


class NoMessage(Struct, frozen=True, kw_only=True):
    """A line that is no message, and the error response to it."""

    answer: JSONRPCError


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
