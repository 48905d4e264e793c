"""How much a JSON text is made of: reading many small parts costs far more time than reading as many bytes."""

from __future__ import annotations

from typing import Final

MOST_PARTS: Final = 100_000
"""How many values a message may be made of."""
_SMALL = 64 * 1024


def has_too_many_parts(text: bytes) -> bool:
    """Whether a JSON text has more parts than are read; what stands in strings is none."""
    parts = JsonParts()
    pieces = range(0, len(text), _SMALL) if len(text) > _SMALL else ()
    return any(parts.count(text[start : start + _SMALL]) > MOST_PARTS for start in pieces)


class JsonParts:
    """Counts the parts of JSON that comes in pieces, as one text or as lines with a text each."""

    def __init__(self) -> None:
        self._counted = 0
        self._held = b""
        """A backslash whose letter is still to come."""
        self._is_in_string = False

    def count(self, piece: bytes) -> int:
        """How many parts there are with this piece."""
        said = self._held + piece
        is_open = (len(said) - len(said.rstrip(b"\\"))) % 2
        self._held = b"\\" * is_open
        bare = said[: len(said) - is_open].replace(rb"\\", b"").replace(rb"\"", b"")
        between = bare.split(b'"')
        within = b"".join(between[not self._is_in_string :: 2])
        if b"\n" not in within and b"\r" not in within:
            outside = b"".join(between[self._is_in_string :: 2])
            self._is_in_string ^= len(between) % 2 == 0
        else:
            # No string goes on over a line: what was taken for one is none, and all of the piece may be parts.
            outside = bare
            last = bare[max(bare.rfind(b"\n"), bare.rfind(b"\r")) :]
            self._is_in_string = last.count(b'"') % 2 == 1
        self._counted += sum(map(outside.count, (b",", b"[", b"{")))
        return self._counted
