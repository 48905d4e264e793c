"""Serve MCP over standard input and output: bounded in memory, quick to stop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import select
import sys
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

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
from deputy.processes.bounded_output import MOST_PARTS, has_too_many_parts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterator

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.server import Server
    from mcp_types import JSONRPCMessage, RequestId

    from deputy.interfaces.mcp.server_state import ServerState

MOST_LINE: Final = 4 * 1024 * 1024
"""The longest message; a longer one is dropped."""
_PIECE = 64 * 1024
MOST_UNWRITTEN = 256
"""How many messages may wait for a client that does not read; beyond that its input is not read."""
PATIENCE_SECONDS = 2.0
"""How long to wait for a client that has closed its side to read another answer."""


async def serve_stdio(server: Server[Any], server_state: ServerState, stop: asyncio.Event) -> None:
    """Serve one client until it leaves or `stop` is set."""
    server_state.sends_answers = True
    with _own_streams() as (source, sink):
        async with anyio.create_task_group() as group:

            async def stopped() -> None:
                await stop.wait()
                server_state.is_leaving = True
                group.cancel_scope.cancel()

            group.start_soon(stopped)
            async with _streams(server_state, source, sink) as (incoming, outgoing):
                await server.run(incoming, outgoing, server.create_initialization_options())
            group.cancel_scope.cancel()


@contextmanager
def _own_streams() -> Generator[tuple[int, int]]:
    """Keep both streams for the protocol: children read nothing, and stray output goes to standard error."""
    sys.stdout.flush()
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield source, sink
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)


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
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """The client has left; interrupted calls count as not cancelled."""
        self._server_state.is_leaving = True
        self._to_server.close()

    # --- in -----------------------------------------------------------------------------------------------------------

    def read_all(self, source: int) -> None:
        """Read until the client closes its side, in a daemon thread."""
        threading.Thread(target=self._pump, args=(source,), name="deputy-mcp-reader", daemon=True).start()

    def _pump(self, source: int) -> None:
        # The loop may be closed already when the last line arrives.
        with suppress(RuntimeError, concurrent.futures.CancelledError):
            for line in read_lines(source):
                receiving = asyncio.run_coroutine_threadsafe(self._receive(read_message(line)), self._loop)
                if not self._is_received(receiving, source):
                    break
            self._loop.call_soon_threadsafe(self.close)

    def _is_received(self, receiving: concurrent.futures.Future[None], source: int) -> bool:
        """Whether the server took a message; False when the client has left without reading its answers."""
        while True:
            written = self._count
            done, _ = concurrent.futures.wait((receiving,), PATIENCE_SECONDS)
            if done:
                receiving.result()
                return True
            if self._count == written and _is_hung_up(source):
                receiving.cancel()
                return False

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
        writer = _Writer(sink, self._loop)
        async with messages:
            async for one in messages:
                text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
                if not await writer.write(visible_json_of(text.encode()) + b"\n", partial(self._wrote, one.message)):
                    self.close()
                    return

    def _wrote(self, message: JSONRPCMessage) -> None:
        self._written.set()
        self._count += 1
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._server_state.answered(message.id)


class _Writer:
    """Writes in a daemon thread, which a client that never reads may block for ever."""

    def __init__(self, sink: int, loop: asyncio.AbstractEventLoop) -> None:
        self._sink = sink
        self._loop = loop
        self._work: queue.SimpleQueue[tuple[bytes, Callable[[], None], asyncio.Future[bool]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="deputy-mcp-writer", daemon=True).start()

    async def write(self, text: bytes, then: Callable[[], None]) -> bool:
        """Whether the text was written; `then` is called if so, even when the caller was cancelled."""
        done: asyncio.Future[bool] = self._loop.create_future()
        self._work.put((text, then, done))
        return await done

    def _run(self) -> None:
        with suppress(RuntimeError):
            while True:
                text, then, done = self._work.get()
                self._loop.call_soon_threadsafe(_resolve, _is_written(self._sink, text), then, done)


def _resolve(is_written: bool, then: Callable[[], None], done: asyncio.Future[bool]) -> None:
    if is_written:
        then()
    if not done.done():
        done.set_result(is_written)


def _is_hung_up(source: int) -> bool:
    """Whether the client has closed its side, even while there is more to read."""
    poll = select.poll()
    # POLLRDHUP reports a half-closed socket; without it, only a full close is seen.
    poll.register(source, getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


def _is_written(sink: int, text: bytes) -> bool:
    view = memoryview(text)
    try:
        while view:
            view = view[os.write(sink, view) :]
    except OSError:
        return False
    return True


# --- messages ---------------------------------------------------------------------------------------------------------


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
