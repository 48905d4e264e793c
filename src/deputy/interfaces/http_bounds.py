"""Bounds of every HTTP server of ours: time to a full request head, connections, request size and log lines."""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, cast

from msgspec import Struct, field

from deputy.interfaces.safe_text import safe_message

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator

HEAD_SECONDS = 10.0
BODY_BYTES = 4 * 1024 * 1024
MOST_CONNECTIONS = 1000
FEWEST_CONNECTIONS = 8
ACCEPT_PAUSE_SECONDS = 0.25
SCARCE_SECONDS = 60.0
"""How long fewer connections are held after descriptors ran out, which is reported once in that time."""
LOG_SECONDS = 60.0
MOST_RECORDS = 10
"""How many log records are written in so many seconds; the rest are counted."""
_MOST_RECORD_LENGTH = 8000
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NOT_LISTENING = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP})
_logger = logging.getLogger("deputy.http")


def connection_limit() -> int:
    """How many connections a server may hold: half of the descriptors of this process, at most 1,000."""
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(FEWEST_CONNECTIONS, min(MOST_CONNECTIONS, allowed // 2))


class HttpBounds(Struct, frozen=True, kw_only=True):
    """What clients of one HTTP server can use of it."""

    head_seconds: float = HEAD_SECONDS
    connections: int = field(default_factory=connection_limit)


class BoundedListener:
    """Accepts connections for a protocol factory, within bounds.

    `waits_for_head` says whether a protocol still waits for a full request head, of its first or of its next request.
    At the limit, the connection that has waited longest for a head makes room for a new one.
    """

    def __init__(
        self,
        sock: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        waits_for_head: Callable[[asyncio.Protocol], bool],
        bounds: HttpBounds,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._make_protocol = make_protocol
        self._waits_for_head = waits_for_head
        self._bounds = bounds
        self._connections: dict[_Connection, None] = {}
        self._closed = asyncio.Event()
        self._scarce_limit = bounds.connections
        self._scarce_until = float("-inf")

    async def accept(self) -> None:
        """Accept connections until cancelled; an error of one connection ends none of the others."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted = await self._next()
            except OSError as error:
                await self._not_accepted(error)
                continue
            try:
                await self._make_room()
                await loop.connect_accepted_socket(self._connection, accepted)
            except OSError:
                accepted.close()
            except asyncio.CancelledError:
                accepted.close()
                raise

    async def _next(self) -> socket.socket:
        """The next connection. `loop.sock_accept` would lose one, unclosed, when it is cancelled as it returns."""
        while True:
            try:
                accepted, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                await self._readable()
            else:
                accepted.setblocking(False)
                return accepted

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_reader(self._sock, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(self._sock)

    def _connection(self) -> _Connection:
        return _Connection(self._connections, self._closed, self._make_protocol(), self._waits_for_head, self._bounds)

    async def _make_room(self) -> None:
        """Wait until there is room for one more connection; those without a request are closed for it."""
        while len(self._connections) >= self._limit():
            self._closed.clear()
            self._drop_idle(1 + len(self._connections) - self._limit())
            await self._closed.wait()

    def _limit(self) -> int:
        return self._bounds.connections if time.monotonic() >= self._scarce_until else self._scarce_limit

    def _drop_idle(self, count: int) -> None:
        """Close the connections that have waited longest for a request head, those that never had one first."""
        idle = [connection for connection in self._connections if connection.is_idle]
        for connection in sorted(idle, key=lambda connection: (connection.has_asked, connection.since))[:count]:
            connection.abort()

    async def _not_accepted(self, error: OSError) -> None:
        if error.errno in _NOT_LISTENING:
            raise error
        if error.errno not in _NO_DESCRIPTOR:
            return
        # Other parts of this process need descriptors too, so the limit is halved for a while.
        self._scarce_limit = max(FEWEST_CONNECTIONS, len(self._connections) // 2)
        is_new = time.monotonic() >= self._scarce_until
        self._scarce_until = time.monotonic() + SCARCE_SECONDS
        self._drop_idle(len(self._connections) - self._scarce_limit)
        await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
        if is_new:
            _logger.warning("Cannot accept connections: %s. Raise the limit with `ulimit -n`.", error.strerror)


class _Connection(asyncio.Protocol):
    """One connection: passes everything to the server's protocol, and closes when a request head takes too long."""

    def __init__(
        self,
        connections: dict[_Connection, None],
        closed: asyncio.Event,
        inner: asyncio.Protocol,
        waits_for_head: Callable[[asyncio.Protocol], bool],
        bounds: HttpBounds,
    ) -> None:
        self.since = time.monotonic()
        self.has_asked = False
        """Whether a full request head was received."""
        self._connections = connections
        self._closed = closed
        self._inner = inner
        self._waits_for_head = waits_for_head
        self._bounds = bounds
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it has no request, and nothing of a response is left to send."""
        return self._waits_for_head(self._inner) and self._transport.get_write_buffer_size() == 0

    def abort(self) -> None:
        """Close it now."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connections[self] = None
        self._inner.connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)
        if not self._waits_for_head(self._inner):
            self.has_asked = True
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._connections.pop(self, None)
        self._closed.set()
        self._inner.connection_lost(exc)

    def _start_timer(self) -> None:
        self.since = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(self._bounds.head_seconds, self._time_is_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self._timer = None
        if self._waits_for_head(self._inner):
            self.abort()


class BoundedLog(logging.Handler):
    """Writes log records to standard error: few per interval, each of bounded length, and how many were dropped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._began_at = float("-inf")
        self._count = 0
        # Import the redactor now: later there may be no descriptor left to open its files.
        safe_message("key=")

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        now = self._clock()
        if now - self._began_at >= LOG_SECONDS:
            dropped = self._count - MOST_RECORDS
            self._began_at, self._count = now, 0
            if dropped > 0:
                _write(f"{dropped:,} more log messages were dropped")
        self._count += 1
        if self._count <= MOST_RECORDS:
            _write(safe_message(self.format(record)[:_MOST_RECORD_LENGTH]))


def _write(text: str) -> None:
    # A closed standard error must not raise in the code that logs.
    with suppress(OSError):
        sys.stderr.write(f"deputy: {text}\n")
        sys.stderr.flush()


@contextmanager
def bounded_log() -> Generator[None]:
    """Write the log of this process within bounds while the block runs."""
    root, handler = logging.getLogger(), BoundedLog()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
