"""Everybody who is told what subagents do, and the files that programs read it from."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from deputy.core.errors import UsageError
from deputy.interfaces.view.event_lines import EventLines

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractContextManager

    from deputy.core.progress import Progress


class Member(Protocol):
    """Somebody who is told."""

    def tell(self, progress: Progress) -> None:
        """Something happened."""
        ...


class Audience:
    """Those who are told; one may join while the work goes on."""

    def __init__(self, *members: Member | None) -> None:
        self._members = [member for member in members if member is not None]

    def join(self, member: Member) -> None:
        """Tell this one from now on."""
        self._members.append(member)

    def tell(self, progress: Progress) -> None:
        """Something happened."""
        for member in self._members:
            member.tell(progress)


@asynccontextmanager
async def open_events(name: str | None) -> AsyncGenerator[EventLines | None]:
    """JSON lines to a file, or to standard output for `-`; none where none is wanted."""
    if name is None:
        yield None
        return
    with _opened(name) as file:
        lines = EventLines(file)
        try:
            yield lines
        finally:
            # Off the loop: a reader that does not read must not keep Ctrl-C from being heard.
            await asyncio.to_thread(lines.close)
            if lines.failure is not None:
                sys.stderr.write(f"deputy: --events: not all was written: {lines.failure.strerror}\n")


def _opened(name: str) -> AbstractContextManager[IO[bytes]]:
    if name == "-":
        return nullcontext(sys.stdout.buffer)
    try:
        return Path(name).open("wb", buffering=0)
    except OSError as error:
        raise UsageError("--events", name, f"it cannot be written: {error.strerror}") from error
