"""Standard input and output as lines of a protocol: bounded in memory; blocking calls run in daemon threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import select
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator

MOST_LINE: Final = 4 * 1024 * 1024
"""The longest message; a longer one is dropped."""
_PIECE = 64 * 1024
MOST_UNWRITTEN = 256
"""How many messages may wait for a client that does not read; beyond that its input is not read."""
_MAX_WAIT_SECONDS = 2.0
"""How long to wait for a client that has closed its side to read another answer."""

_M = TypeVar("_M")


@contextmanager
def own_streams() -> Generator[tuple[int, int]]:
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


# --- in ---------------------------------------------------------------------------------------------------------------


class StdioReader:
    """Passes the lines of a file descriptor to the event loop, one at a time, until the client closes its side."""

    def __init__(self, source: int, written: Callable[[], int], close: Callable[[], None]) -> None:
        """`written` counts the messages that the client took; `close` is called at the end."""
        self._source = source
        self._written = written
        self._close = close
        self._loop = asyncio.get_running_loop()

    def start(self, read: Callable[[bytes | None], _M], receive: Callable[[_M], Coroutine[Any, Any, None]]) -> None:
        """Read each line in a thread, and receive it on the loop."""
        threading.Thread(target=self._pump, args=(read, receive), name="deputy-reader", daemon=True).start()

    def _pump(self, read: Callable[[bytes | None], _M], receive: Callable[[_M], Coroutine[Any, Any, None]]) -> None:
        # The loop may be closed already when the last line arrives.
        with suppress(RuntimeError, concurrent.futures.CancelledError):
            for line in read_lines(self._source):
                receiving = asyncio.run_coroutine_threadsafe(receive(read(line)), self._loop)
                if not self._is_received(receiving):
                    break
            self._loop.call_soon_threadsafe(self._close)

    def _is_received(self, receiving: concurrent.futures.Future[None]) -> bool:
        """Whether the server took a message; False when the client has left without reading its answers."""
        while True:
            written = self._written()
            done, _ = concurrent.futures.wait((receiving,), _MAX_WAIT_SECONDS)
            if done:
                receiving.result()
                return True
            if self._written() == written and is_hung_up(self._source):
                receiving.cancel()
                return False


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


def is_hung_up(source: int) -> bool:
    """Whether the client has closed its side, even while there is more to read."""
    poll = select.poll()
    # POLLRDHUP reports a half-closed socket; without it, only a full close is seen.
    poll.register(source, getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


# --- out --------------------------------------------------------------------------------------------------------------


class StdioWriter:
    """Writes in a daemon thread, which a client that never reads may block for ever."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[bytes, Callable[[], None], asyncio.Future[bool]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="deputy-writer", daemon=True).start()

    def put(self, text: bytes, then: Callable[[], None]) -> asyncio.Future[bool]:
        """Whether the text was written, in the future; `then` is called if so, even when the caller was cancelled."""
        done: asyncio.Future[bool] = self._loop.create_future()
        self._work.put((text, then, done))
        return done

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


def _is_written(sink: int, text: bytes) -> bool:
    view = memoryview(text)
    try:
        while view:
            view = view[os.write(sink, view) :]
    except OSError:
        return False
    return True
