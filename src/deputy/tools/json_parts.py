"""Count the values in JSON before parsing: many small values cost far more time than as many bytes."""

from __future__ import annotations

from typing import Final

MOST_PARTS: Final = 100_000
"""The most values in one message."""
_SMALL = 64 * 1024


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
