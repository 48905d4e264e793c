"""Parse server-sent events from chunks of bytes, in linear time."""

from __future__ import annotations

from deputy.core.model_errors import ReplyTooLarge

EVENT_LIMIT_BYTES = 32 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class EventReader:
    """Reads the data of events from chunks cut anywhere; names, ids and comments are dropped.

    Bytes are not decoded here, so a character may be split over chunks.
    """

    __slots__ = ("_after_return", "_data", "_data_size", "_is_first", "_limit", "_line", "_line_size")

    def __init__(self, limit_bytes: int = EVENT_LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._line: list[bytes] = []
        self._line_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._after_return = False
        self._is_first = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk completes."""
        if self._after_return or b"\r" in chunk:
            chunk = self._with_newlines(chunk)
        if b"\n" not in chunk:
            self._hold(chunk)
            return []
        if self._line:
            chunk = self._take_line() + chunk
        if not self._data and len(chunk) <= self._limit and (plain := _plain_events(chunk)) is not None:
            self._is_first = False
            return plain
        lines = chunk.split(b"\n")
        rest = lines.pop()
        events = self._read(lines)
        if rest:
            self._hold(rest)
        return events

    def close(self) -> list[bytes]:
        """The data of a last event without its closing empty line."""
        return self._read([self._take_line(), b""])

    def _read(self, lines: list[bytes]) -> list[bytes]:
        if self._is_first:
            self._is_first = False
            lines[0] = lines[0].removeprefix(_BOM)
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    events.append(data[0] if len(data) == 1 else b"\n".join(data))
                    data.clear()
                    self._data_size = 0
            elif line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b"data: ") else line[5:])
                self._data_size += len(line)
                if self._data_size > self._limit:
                    self._refuse()
        return events

    def _hold(self, piece: bytes) -> None:
        self._line.append(piece)
        self._line_size += len(piece)
        if self._line_size + self._data_size > self._limit:
            self._refuse()

    def _take_line(self) -> bytes:
        line = b"".join(self._line)
        self._line.clear()
        self._line_size = 0
        return line

    def _refuse(self) -> None:
        raise ReplyTooLarge(f"one event of the stream is larger than {self._limit:,} bytes")

    def _with_newlines(self, chunk: bytes) -> bytes:
        """The chunk with every line end as a newline; a CR at the end may be half of a CRLF."""
        if self._after_return and chunk:
            self._after_return = False
            chunk = chunk.removeprefix(b"\n")
        if chunk.endswith(b"\r"):
            self._after_return = True
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _plain_events(chunk: bytes) -> list[bytes] | None:
    """The data of a chunk of whole one-line events, the usual case; None for other chunks."""
    if not (chunk.startswith(b"data: ") and chunk.endswith(b"\n\n")):
        return None
    events = chunk[6:-2].split(b"\n\ndata: ")
    return events if chunk.count(b"\n") == 2 * len(events) else None
