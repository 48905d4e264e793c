"""Keep the beginning, the end and the size of unbounded output."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

_CHUNK = 65_536


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
