"""Read a program's output within limits: event lines one by one, of other output the beginning and the end."""

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
    """The output of a program beside its events."""

    lines: int = 0
    """The number of event lines."""
    noise: str = ""
    """Beginning and end of the other lines."""
    errors: str = ""
    """Beginning and end of standard error."""
    too_long: int = 0
    """The number of lines that were too long to read."""
    total_bytes: int = 0


class OutputReader:
    """Reads the output of one program."""

    def __init__(self, spill: SpillFile | None = None) -> None:
        self._spill = spill
        self._lines = LineReader()
        self._noise = HeadAndTail(_NOISE_BYTES, _NOISE_BYTES)
        self._errors = HeadAndTail(_NOISE_BYTES, _NOISE_BYTES)
        self._events = 0
        self._bytes = 0

    async def lines(self, stdout: StreamReader) -> AsyncIterator[bytes]:
        """The lines as they arrive; the caller reports each as event or noise."""
        while chunk := await stdout.read(_CHUNK):
            self._bytes += len(chunk)
            if self._spill is not None:
                self._spill.feed(chunk)
            for line in self._lines.feed(chunk):
                yield line
        yield self._lines.rest()

    async def overhear(self, stderr: StreamReader) -> None:
        """Read standard error."""
        while chunk := await stderr.read(_CHUNK):
            self._errors.feed(chunk)
            if self._spill is not None:
                self._spill.feed(chunk)

    def count_event(self) -> None:
        """Count a line that was an event."""
        self._events += 1

    def take_noise(self, line: bytes) -> None:
        """Keep a line that was not an event."""
        self._noise.feed(line + b"\n" if line.strip() else b"")

    @property
    def printed(self) -> ProgramOutput:
        """The output so far."""
        return ProgramOutput(
            lines=self._events,
            noise=self._noise.text,
            errors=self._errors.text,
            too_long=self._lines.too_long,
            total_bytes=self._bytes,
        )


@contextmanager
def read_output(spill: str, redactor: Redactor | None) -> Generator[OutputReader]:
    """Make an output reader; it also writes all output to the spill file, if one is named."""
    file = SpillFile(spill, redactor) if spill else None
    try:
        yield OutputReader(file)
    finally:
        if file is not None:
            file.close()
