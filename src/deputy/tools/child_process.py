"""Child processes that end with the call that started them, and all that they started with them."""

from __future__ import annotations

import os
import selectors
import signal
import time
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from subprocess import Popen

    from deputy.tools.interruptible import StopSignal

Sinks: TypeAlias = "Mapping[IO[bytes] | None, Callable[[bytes], bool]]"
"""What takes each stream's output; a sink says whether it wants more."""

Ending: TypeAlias = Literal["exited", "time is up", "stopped", "enough"]

_CHUNK = 65_536
_POLL_SECONDS = 0.02


class ChildExit(Struct, frozen=True):
    """How watching a child ended, and its exit code (negative: the signal that ended it)."""

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
    """Hand a child's output to its sinks until it exits, a sink has enough, time is up or a stop is wished.

    The child must lead its own group. Afterwards nothing of the group is left; one that is given grace is asked first,
    and may tidy up.
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
    """What was still in the pipes; a process that escaped us may hold one open, so nothing is waited for."""
    for stream, sink in _streams(sinks):
        with suppress(BlockingIOError):
            while (data := os.read(stream.fileno(), _CHUNK)) and sink(data):
                pass


def _end(child: Popen[bytes], grace_seconds: float) -> int:
    """The exit code, after the whole group is gone. Its number is ours until the leader is reaped, so kill first."""
    with suppress(ProcessLookupError, PermissionError):
        if grace_seconds and not _has_exited(child):
            os.killpg(child.pid, signal.SIGTERM)
            _wait(child, time.monotonic() + grace_seconds)
        os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


def _wait(child: Popen[bytes], deadline: float) -> None:
    """Until it has exited, but no longer; it is not reaped."""
    while not _has_exited(child) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


@contextmanager
def _exit_handle(child: Popen[bytes]) -> Generator[int | None]:
    """Something that can be waited for together with output, and is readable once the child has exited."""
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
