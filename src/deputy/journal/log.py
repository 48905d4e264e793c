"""The write-ahead log as SQLite lays it out: where it is broken, and the pages that can still be had from it."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_HEADER, _FRAME = struct.Struct(">6I8s"), struct.Struct(">2I8s8s")
_MAGIC = 0x377F0682
_LARGEST = 1 << 28


class _Frame(NamedTuple):
    at: int
    page: int
    pages: int
    """How many pages the file has behind a commit; 0 before."""
    salt: bytes
    total: bytes


class Log:
    """A log in memory. SQLite takes it for ended where a checksum does not fit; here the rest is seen too."""

    def __init__(self, content: bytes, page_size: int) -> None:
        self._content = content
        self._page_size = page_size
        magic, *_, self._total = _HEADER.unpack(content[: _HEADER.size].ljust(_HEADER.size, b"\0"))
        self._order = ">" if magic & 1 else "<"
        self._frames = self._last_round(content[16:24])

    @classmethod
    def beside(cls, path: Path, page_size: int) -> Log:
        """The log of this journal; an empty one where there is none."""
        log = path.with_name(f"{path.name}-wal")
        try:
            return cls(log.read_bytes() if log.stat().st_size <= _LARGEST else b"", page_size)
        except OSError:
            return cls(b"", page_size)

    def broken_at(self) -> int | None:
        """The first frame that SQLite does not believe, though a transaction behind it was committed."""
        if not self._frames:
            return None
        fits = self._sum(self._content[:24], bytes(8)) == self._total
        total = self._total
        for number, frame in enumerate(self._frames):
            if fits:
                inner = self._sum(self._content[frame.at : frame.at + 8], total)
                fits = self._sum(self._page(frame), inner) == frame.total
            if not fits:
                return number
            total = frame.total
        return None

    def pages(self) -> dict[int, bytes]:
        """The last content of every page in the log; whether it can be trusted is for its records to say."""
        salt = self._frames[-1].salt if self._frames else b""
        return {frame.page: self._page(frame) for frame in self._frames if frame.salt == salt and frame.page}

    def _page(self, frame: _Frame) -> bytes:
        start = frame.at + _FRAME.size
        return self._content[start : start + self._page_size]

    def _last_round(self, salt: bytes) -> list[_Frame]:
        """The frames up to the last commit; behind it stand the ones of earlier rounds."""
        size = _FRAME.size + self._page_size
        starts = range(_HEADER.size, len(self._content) - size + 1, size)
        frames = [_Frame(at, *_FRAME.unpack_from(self._content, at)) for at in starts]
        if not any(frame.salt == salt for frame in frames):
            # The header is gone; every frame repeats what is needed of it.
            salt = next((a.salt for a, b in pairwise(frames) if a.salt == b.salt and a.page), b"")
        commits = [number for number, frame in enumerate(frames) if frame.salt == salt and frame.pages]
        return frames[: commits[-1] + 1] if commits else []

    def _sum(self, data: bytes, before: bytes) -> bytes:
        first, second = struct.unpack(">2I", before)
        words = struct.unpack(f"{self._order}{len(data) // 4}I", data)
        for even, odd in zip(words[::2], words[1::2], strict=True):
            first = (first + even + second) & 0xFFFFFFFF
            second = (second + odd + first) & 0xFFFFFFFF
        return struct.pack(">2I", first, second)
