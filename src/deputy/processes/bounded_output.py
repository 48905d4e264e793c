"""Bounded output of programs: lines, a file with a size limit, and the beginning and end of a stream."""

from __future__ import annotations

import codecs
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from deputy.core.redaction import Redactor

LINE_BYTES = 4_000_000
SPILL_BYTES = 10_000_000
MOST_PARTS: Final = 100_000
"""The most values in one message: many small values cost far more time than as many bytes."""
_SMALL = 64 * 1024
_CHUNK = 65_536


class LineReader:
    """Splits chunks of bytes into lines; a line that is too long is skipped and counted."""

    def __init__(self, limit_bytes: int = LINE_BYTES) -> None:
        self.too_long = 0
        self._limit = limit_bytes
        self._held = bytearray()
        self._is_skipping = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that this chunk completes."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            if not self._is_skipping and len(self._held) + end - start <= self._limit:
                yield bytes(self._held) + chunk[start:end]
            elif not self._is_skipping:
                self.too_long += 1
            self._held.clear()
            self._is_skipping = False
            start = end + 1
        self._hold(chunk[start:])

    def rest(self) -> bytes:
        """The bytes after the last line end."""
        return bytes(self._held)

    def _hold(self, data: bytes) -> None:
        if self._is_skipping:
            return
        if len(self._held) + len(data) > self._limit:
            self.too_long += 1
            self._is_skipping = True
            self._held.clear()
        else:
            self._held += data


class SpillFile:
    """A private file that takes redacted output up to a size limit."""

    def __init__(self, path: str, redactor: Redactor | None = None, limit_bytes: int = SPILL_BYTES) -> None:
        self._left = limit_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._redacting = None if redactor is None else redactor.stream()
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def feed(self, chunk: bytes) -> None:
        """Write a chunk, up to the limit."""
        if self._file is None or self._left <= 0:
            return
        text = self._decoder.decode(chunk)
        self._write(text if self._redacting is None else self._redacting.feed(text))

    def close(self) -> None:
        """Write the text held back by the redactor, and close."""
        if self._file is None:
            return
        if self._redacting is not None and self._left > 0:
            self._write(self._redacting.flush())
        os.close(self._file)
        self._file = None

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")[: self._left]
        self._left -= len(data)
        with suppress(OSError):
            if self._file is not None:
                os.write(self._file, data)


def has_too_many_parts(text: bytes) -> bool:
    """Whether a JSON text has too many values to be parsed."""
    parts = JsonParts()
    pieces = range(0, len(text), _SMALL) if len(text) > _SMALL else ()
    return any(parts.count(text[start : start + _SMALL]) > MOST_PARTS for start in pieces)


class JsonParts:
    """Counts the values of JSON or JSON lines that arrive in pieces."""

    def __init__(self) -> None:
        self._counted = 0
        self._held = b""
        """A trailing backslash that escapes the first character of the next piece."""
        self._is_in_string = False

    def count(self, piece: bytes) -> int:
        """Count this piece too, and return the total."""
        text = self._held + piece
        is_open = (len(text) - len(text.rstrip(b"\\"))) % 2
        self._held = b"\\" * is_open
        bare = text[: len(text) - is_open].replace(rb"\\", b"").replace(rb"\"", b"")
        between = bare.split(b'"')
        within = b"".join(between[not self._is_in_string :: 2])
        if b"\n" not in within and b"\r" not in within:
            outside = b"".join(between[self._is_in_string :: 2])
            self._is_in_string ^= len(between) % 2 == 0
        else:
            # JSON strings contain no line end, so the quotes were misread: count the whole piece.
            outside = bare
            last = bare[max(bare.rfind(b"\n"), bare.rfind(b"\r")) :]
            self._is_in_string = last.count(b'"') % 2 == 1
        self._counted += sum(map(outside.count, (b",", b"[", b"{")))
        return self._counted


class HeadAndTail:
    """The beginning, the end and the size of a stream, in bounded memory."""

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes

    def feed(self, data: bytes) -> bool:
        """Add a chunk; always True."""
        self.total += len(data)
        free = self._head_bytes - len(self._head)
        if free > 0:
            self._head += data[:free]
            data = data[free:]
        self._tail += data[-self._tail_bytes :] if self._tail_bytes else b""
        if len(self._tail) > 2 * self._tail_bytes:
            del self._tail[: -self._tail_bytes]
        return True

    @property
    def text(self) -> str:
        """The kept text, with a marker where bytes are missing."""
        tail = bytes(self._tail[-self._tail_bytes :])
        missing = self.total - len(self._head) - len(tail)
        if not missing:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        head = self._head.decode("utf-8", "replace")
        return f"{head}\n[… {missing:,} bytes left out …]\n{tail.decode('utf-8', 'replace')}"


async def take(stream: asyncio.StreamReader, kept: HeadAndTail) -> None:
    """Read a stream to its end."""
    while data := await stream.read(_CHUNK):
        kept.feed(data)
