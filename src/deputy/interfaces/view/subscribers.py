"""Everybody who is told what subagents do, and the files that programs read it from."""

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
"""How long a pipe's reader may take to come."""

_LOOK_SECONDS = 0.05


class Subscriber(Protocol):
    """Somebody who is told."""

    def emit(self, progress: Progress) -> None:
        """Something happened."""
        ...


class Subscribers:
    """Those who are told; one may join and leave while the work goes on."""

    def __init__(self, *members: Subscriber | None) -> None:
        self._members = [member for member in members if member is not None]

    def subscribe(self, member: Subscriber) -> None:
        """Tell this one from now on."""
        self._members.append(member)

    def unsubscribe(self, member: Subscriber) -> None:
        """Tell this one no more."""
        self._members.remove(member)

    def emit(self, progress: Progress) -> None:
        """Something happened."""
        for member in self._members:
            member.emit(progress)


@asynccontextmanager
async def open_events(name: str | None) -> AsyncGenerator[EventLines | None]:
    """JSON lines to a file, or to standard output for `-`; none where none is wanted."""
    if name is None:
        yield None
        return
    with await _opened(name) as file:
        lines = EventLines(file)
        try:
            yield lines
        finally:
            # Off the loop: a reader that does not read must not keep Ctrl-C from being heard.
            await asyncio.to_thread(lines.close)
            if lines.failure is not None:
                sys.stderr.write(f"deputy: --events: not all was written: {lines.failure.strerror}\n")


async def _opened(name: str) -> AbstractContextManager[IO[bytes]]:
    if name == "-":
        buffer = sys.stdout.buffer
        # Beneath the buffer: one whose lock a stuck write holds would stop the whole process at its end.
        return nullcontext(getattr(buffer, "raw", buffer))
    deadline = time.monotonic() + READER_SECONDS
    while True:
        try:
            # A pipe without a reader would hold the open up for ever.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o600)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise UsageError("--events", name, f"it cannot be written: {error.strerror}") from error
            if time.monotonic() > deadline:
                text = f"nobody has read from it for {READER_SECONDS:g} s: start the reader first, or name a file"
                raise UsageError("--events", name, text) from error
            await asyncio.sleep(_LOOK_SECONDS)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb", buffering=0)
