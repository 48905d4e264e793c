"""Short child processes of blocking code: a thread that a cancel can stop, and the end of the whole process group."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import IO, TYPE_CHECKING, Literal, TypeAlias, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from subprocess import Popen

Sinks: TypeAlias = "Mapping[IO[bytes] | None, Callable[[bytes], bool]]"
"""A sink for each output stream; it returns False when it needs no more."""

Slots: TypeAlias = AbstractAsyncContextManager[object]
"""A semaphore that limits the programs that all agents run at once."""

Ending: TypeAlias = Literal["exited", "time is up", "stopped", "enough"]

_Result = TypeVar("_Result")

_CHUNK = 65_536
_POLL_SECONDS = 0.02
_STOP_SECONDS = 10


class StopSignal:
    """A stop request that `select` can wait for together with output."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def fileno(self) -> int:
        """The descriptor that becomes readable when a stop is requested."""
        return self._reading

    def request_stop(self) -> None:
        """Make the descriptor readable."""
        os.write(self._writing, b"!")

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self._reading)
        os.close(self._writing)


async def interruptible(job: Callable[[StopSignal], _Result]) -> _Result:
    """Run a blocking job in its own thread; a cancel requests a stop and waits for the job."""
    stop = StopSignal()
    thread = ThreadPoolExecutor(max_workers=1)
    done = asyncio.wrap_future(thread.submit(job, stop))
    thread.shutdown(wait=False)

    def end(done: asyncio.Future[_Result]) -> None:
        stop.close()
        if not done.cancelled():
            # After a cancel no caller asks for it, and asyncio would print it as an error.
            done.exception()

    done.add_done_callback(end)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        if not done.done():
            stop.request_stop()
            await asyncio.wait({done}, timeout=_STOP_SECONDS)
        raise


class ChildExit(Struct, frozen=True):
    """Why waiting for a child ended, and its exit code (negative: the number of a signal)."""

    how: Ending
    code: int


def watch(
    child: Popen[bytes],
    sinks: Sinks,
    *,
    stop: StopSignal,
    seconds: float,
    grace_seconds: float = 0.0,
) -> ChildExit:
    """Pass a child's output to its sinks until it exits, a sink is full, the time is up or a stop is requested.

    The child must lead its own process group, which is killed at the end; with grace seconds it gets SIGTERM first.
    """
    how: Ending = "stopped"
    try:
        how = _listen(child, sinks, stop, time.monotonic() + seconds)
    finally:
        code = _end(child, grace_seconds)
    if how != "enough":
        _drain(sinks)
    return ChildExit(how, code)


def _listen(child: Popen[bytes], sinks: Sinks, stop: StopSignal, deadline: float) -> Ending:
    with selectors.DefaultSelector() as selector, _exit_handle(child) as handle:
        selector.register(stop, selectors.EVENT_READ)
        if handle is not None:
            selector.register(handle, selectors.EVENT_READ)
        for stream, sink in _streams(sinks):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, sink)
        while not _has_exited(child):
            left = deadline - time.monotonic()
            if left <= 0:
                return "time is up"
            for key, _ in selector.select(left if handle is not None else min(left, _POLL_SECONDS)):
                if key.fileobj is stop:
                    return "stopped"
                if key.data is None:
                    continue
                data = os.read(key.fd, _CHUNK)
                if not data:
                    selector.unregister(key.fileobj)
                elif not key.data(data):
                    return "enough"
        return "exited"


def _streams(sinks: Sinks) -> Iterator[tuple[IO[bytes], Callable[[bytes], bool]]]:
    return ((stream, sink) for stream, sink in sinks.items() if stream is not None)


def _drain(sinks: Sinks) -> None:
    """Read what is left in the pipes without waiting: an escaped process may hold one open."""
    for stream, sink in _streams(sinks):
        with suppress(BlockingIOError):
            while (data := os.read(stream.fileno(), _CHUNK)) and sink(data):
                pass


def _end(child: Popen[bytes], grace_seconds: float) -> int:
    """Kill the group, then reap its leader: until then the group's number cannot be reused."""
    with suppress(ProcessLookupError, PermissionError):
        if grace_seconds and not _has_exited(child):
            os.killpg(child.pid, signal.SIGTERM)
            _wait(child, time.monotonic() + grace_seconds)
        os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


def _wait(child: Popen[bytes], deadline: float) -> None:
    """Wait for the exit without reaping."""
    while not _has_exited(child) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


@contextmanager
def _exit_handle(child: Popen[bytes]) -> Generator[int | None]:
    """A descriptor that becomes readable when the child exits; None where the system has none."""
    try:
        handle = os.pidfd_open(child.pid)
    except (AttributeError, OSError):
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _has_exited(child: Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
