"""Output within bounds: text that is cut says how much is missing, and names that could deceive are quoted."""

from __future__ import annotations

_PATH_LENGTH = 4096


def cut(text: str, limit_bytes: int, advice: str = "") -> str:
    """The beginning of a text that is too long, up to a line end where one is near, and how much is missing."""
    kept = beginning(text, limit_bytes)
    missing = len(text) - len(kept)
    return f"{kept}\n[cut here: {missing:,} more characters{advice and '; '}{advice}]" if missing else text


def beginning(text: str, limit_bytes: int) -> str:
    """As much of a text as fits, up to a line end where one is near."""
    encoded = text[:limit_bytes].encode("utf-8", "replace")
    if len(encoded) <= limit_bytes and len(text) <= limit_bytes:
        return text
    kept = encoded[:limit_bytes].decode("utf-8", "ignore")
    line_end = kept.rfind("\n")
    return kept[: line_end + 1] if line_end > len(kept) // 2 else kept


def shown_path(path: str) -> str:
    """A path on one line: a name with line ends, escapes or bytes that are no text is quoted, an endless one cut."""
    shown = path if path.isprintable() else repr(path)
    return shown if len(shown) <= _PATH_LENGTH else f"{shown[:_PATH_LENGTH]}…"


class HeadAndTail:
    """The beginning, the end and the size of a stream, in bounded memory whatever comes."""

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes

    def feed(self, data: bytes) -> bool:
        """Take what came next; there is always room."""
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
        """What was kept, with a marker where something is missing."""
        tail = bytes(self._tail[-self._tail_bytes :])
        missing = self.total - len(self._head) - len(tail)
        if not missing:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        head = self._head.decode("utf-8", "replace")
        return f"{head}\n[… {missing:,} bytes left out …]\n{tail.decode('utf-8', 'replace')}"
