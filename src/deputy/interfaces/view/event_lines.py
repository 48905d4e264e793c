"""Events for programs, as JSON lines in a file; and the receivers of events."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from collections import deque
from contextlib import asynccontextmanager, nullcontext
from threading import Condition, Thread
from typing import IO, TYPE_CHECKING, Any, Protocol

from msgspec import to_builtins

from deputy.core.errors import UsageError
from deputy.processes.outgoing import outgoing_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractContextManager

    from deputy.core.progress import Progress

READER_SECONDS = 5.0
"""How long to wait for the reader of a pipe."""

_LOOK_SECONDS = 0.05
_UNWRITTEN = 10_000
_PIECE = 4096
_MAX_WAIT_SECONDS = 5.0
"""How long to wait at the end for a reader that does not read."""


class EventLines:
    """Writes events in its own thread, so that a slow reader never delays the work.

    When the reader is too slow, the oldest events are dropped; the numbers then show a gap.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._seq = 0
        self._unwritten: deque[bytes] = deque(maxlen=_UNWRITTEN)
        self._news = Condition()
        self._is_over = False
        self._written = 0
        self.failure: OSError | None = None
        """Why not all was written, unless the reader left."""
        self._writer = Thread(target=self._write_all, daemon=True)
        self._writer.start()

    def emit(self, progress: Progress) -> None:
        """Write an event."""
        form = event_dict(progress)
        self.write(form.pop("event"), form)

    def write(self, event: str, fields: dict[str, Any]) -> None:
        """Queue one line."""
        self._seq += 1
        head = {"event": event, "seq": self._seq, "time": _stamp(time.time())}
        with self._news:
            self._unwritten.append(outgoing_json({**head, **fields}) + b"\n")
            self._news.notify()

    def close(self) -> None:
        """Wait until all is written, or the reader no longer reads."""
        with self._news:
            self._is_over = True
            self._news.notify()
        while self._writer.is_alive():
            before = self._written
            self._writer.join(_MAX_WAIT_SECONDS)
            if self._writer.is_alive() and self._written == before:
                self.failure = TimeoutError(errno.ETIMEDOUT, "the reader does not read")
                return

    def _write_all(self) -> None:
        try:
            while lines := memoryview(self._next()):
                while lines:
                    # Small pieces show whether a slow reader still reads.
                    taken = self._file.write(lines[:_PIECE])
                    self._written += taken
                    lines = lines[taken:]
                self._file.flush()
        except BrokenPipeError:
            return
        except OSError as error:
            self.failure = error

    def _next(self) -> bytes:
        with self._news:
            self._news.wait_for(lambda: self._unwritten or self._is_over)
            lines = b"".join(self._unwritten)
            self._unwritten.clear()
            return lines


def event_dict(progress: Progress) -> dict[str, Any]:
    """An event as JSON: only the fields of its kind."""
    form: dict[str, Any] = to_builtins(progress)
    # An unknown cost is null, and not left out like a field of another kind.
    return form if progress.input is None else {**form, "cost": progress.cost}


def _stamp(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Subscriber(Protocol):
    """Receives events."""

    def emit(self, progress: Progress) -> None:
        """Take in an event."""
        ...


class Subscribers:
    """The receivers of events; they may join and leave at any time."""

    def __init__(self, *members: Subscriber | None) -> None:
        self._members = [member for member in members if member is not None]

    def subscribe(self, member: Subscriber) -> None:
        """Add a receiver."""
        self._members.append(member)

    def unsubscribe(self, member: Subscriber) -> None:
        """Remove a receiver."""
        self._members.remove(member)

    def emit(self, progress: Progress) -> None:
        """Take in an event."""
        for member in self._members:
            member.emit(progress)


@asynccontextmanager
async def open_events(name: str | None) -> AsyncGenerator[EventLines | None]:
    """JSON lines to a file, or to standard output for `-`; None for no name."""
    if name is None:
        yield None
        return
    with await _opened(name) as file:
        lines = EventLines(file)
        try:
            yield lines
        finally:
            # Off the loop: a reader that does not read must not block Ctrl-C.
            await asyncio.to_thread(lines.close)
            if lines.failure is not None:
                sys.stderr.write(f"deputy: --events: not all was written: {lines.failure.strerror}\n")


async def _opened(name: str) -> AbstractContextManager[IO[bytes]]:
    if name == "-":
        buffer = sys.stdout.buffer
        # Without the buffer: its lock, held by a stuck write, would block the exit of the process.
        return nullcontext(getattr(buffer, "raw", buffer))
    deadline = time.monotonic() + READER_SECONDS
    while True:
        try:
            # Non-blocking: opening a pipe without a reader would block for ever.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o600)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise UsageError("--events", name, f"cannot be written: {error.strerror}; name another file") from error
            if time.monotonic() > deadline:
                text = f"no reader for {READER_SECONDS:g} s: start the reader first, or name a file"
                raise UsageError("--events", name, text) from error
            await asyncio.sleep(_LOOK_SECONDS)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb", buffering=0)
