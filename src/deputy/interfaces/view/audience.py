"""Everybody who is told what subagents do, and the files that programs read it from."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from deputy.core.errors import UsageError
from deputy.interfaces.view.event_lines import EventLines

if TYPE_CHECKING:
    from collections.abc import Generator

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


@contextmanager
def open_events(name: str | None) -> Generator[EventLines | None]:
    """JSON lines to a file, or to standard output for `-`; none where none is wanted."""
    if name is None:
        yield None
    elif name == "-":
        yield EventLines(sys.stdout.buffer)
    else:
        try:
            file = Path(name).open("wb")  # noqa: SIM115  closed below; opened apart so that only its failure is usage
        except OSError as error:
            raise UsageError("--events", name, f"it cannot be written: {error.strerror}") from error
        with file:
            yield EventLines(file)
