"""What a program prints, heard within bounds: its lines one by one, and of the rest the beginning and the end."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.processes.bounded_output import LineReader, SpillFile
from deputy.processes.head_and_tail import HeadAndTail

if TYPE_CHECKING:
    from asyncio import StreamReader
    from collections.abc import AsyncIterator, Generator

    from deputy.core.redaction import Redactor

_CHUNK = 64 * 1024
_NOISE_BYTES = 8_000


class ProgramOutput(Struct, frozen=True, kw_only=True):
    """What a program printed that was no event."""

    lines: int = 0
    """How many lines were events."""
    noise: str = ""
    """The beginning and the end of the others."""
    errors: str = ""
    """The beginning and the end of its standard error."""
    too_long: int = 0
    """How many lines were too long to be read."""
    total_bytes: int = 0


class OutputReader:
    """One program's output, from its first byte to its last."""

    def __init__(self, spill: SpillFile | None = None) -> None:
        self._spill = spill
        self._lines = LineReader()
        self._noise = HeadAndTail(_NOISE_BYTES, _NOISE_BYTES)
        self._errors = HeadAndTail(_NOISE_BYTES, _NOISE_BYTES)
        self._events = 0
        self._bytes = 0

    async def lines(self, stdout: StreamReader) -> AsyncIterator[bytes]:
        """Its lines, as they come; each is then either an event or noise."""
        while chunk := await stdout.read(_CHUNK):
            self._bytes += len(chunk)
            if self._spill is not None:
                self._spill.feed(chunk)
            for line in self._lines.feed(chunk):
                yield line
        yield self._lines.rest()

    async def overhear(self, stderr: StreamReader) -> None:
        """Keep what it says beside."""
        while chunk := await stderr.read(_CHUNK):
            self._errors.feed(chunk)
            if self._spill is not None:
                self._spill.feed(chunk)

    def count_event(self) -> None:
        """A line was one."""
        self._events += 1

    def take_noise(self, line: bytes) -> None:
        """A line was no event."""
        self._noise.feed(line + b"\n" if line.strip() else b"")

    @property
    def printed(self) -> ProgramOutput:
        """All that was heard, to tell from it how the program ended."""
        return ProgramOutput(
            lines=self._events,
            noise=self._noise.text,
            errors=self._errors.text,
            too_long=self._lines.too_long,
            total_bytes=self._bytes,
        )


@contextmanager
def read_output(spill: str, redactor: Redactor | None) -> Generator[OutputReader]:
    """Hear a program; all it prints goes to a file too, where one is named."""
    file = SpillFile(spill, redactor) if spill else None
    try:
        yield OutputReader(file)
    finally:
        if file is not None:
            file.close()
