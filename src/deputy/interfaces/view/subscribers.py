"""Subscribers of progress events, and the event file for programs."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from contextlib import asynccontextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Protocol

from deputy.core.errors import UsageError
from deputy.interfaces.view.event_lines import EventLines

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractContextManager

    from deputy.core.progress import Progress


READER_SECONDS = 5.0
"""How long to wait for the reader of a pipe."""

_LOOK_SECONDS = 0.05


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
                raise UsageError("--events", name, f"cannot be written: {error.strerror}") from error
            if time.monotonic() > deadline:
                text = f"no reader for {READER_SECONDS:g} s: start the reader first, or name a file"
                raise UsageError("--events", name, text) from error
            await asyncio.sleep(_LOOK_SECONDS)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb", buffering=0)
