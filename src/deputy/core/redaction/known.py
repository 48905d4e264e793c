"""Known values: hidden wherever they occur, in every usual spelling."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from deputy.core.redaction.names import LEAST_KNOWN, is_known_secret

if TYPE_CHECKING:
    from collections.abc import Iterable

_PIECE = 256
_OVERLAP = 16
"""A longer value is known by pieces that overlap, so that a stream never holds back more than one of them."""


class KnownValues:
    """The spellings of known values."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values = {value.strip() for value in values}

    @cached_property
    def spellings(self) -> tuple[str, ...]:
        """All that is hidden."""
        pieces = (piece for value in self._values if is_known_secret(value) for piece in _pieces(value))
        return tuple(sorted({spelling for piece in pieces for spelling in _spellings(piece)}))

    @cached_property
    def shortest(self) -> int:
        """The length of the shortest spelling."""
        return min(map(len, self.spellings), default=0)

    @cached_property
    def beginnings(self) -> dict[str, tuple[str, ...]]:
        """All that a spelling may begin with, by its last character, longest first."""
        found: dict[str, set[str]] = {}
        for spelling in self.spellings:
            for length in range(1, len(spelling)):
                found.setdefault(spelling[length - 1], set()).add(spelling[:length])
        return {last: tuple(sorted(some, key=len, reverse=True)) for last, some in found.items()}

    def occur_in(self, text: str) -> bool:
        """Whether any of them is in a text."""
        return any(spelling in text for spelling in self.spellings)


class KnownFilter:
    """Replaces known values in a text that comes in chunks."""

    def __init__(self, known: KnownValues, mark: str) -> None:
        self._known = known
        self._mark = mark
        self._held = ""
        self._hidden = 0
        """How many of the held characters belong to a value whose mark is already shown."""

    @property
    def held(self) -> int:
        """How many characters are held back."""
        return len(self._held)

    def feed(self, chunk: str, *, final: bool = False) -> str:
        """What may be shown now that this chunk has come."""
        text = self._held + chunk
        hold = len(text) if final else self._hold_from(text)
        shown: list[str] = []
        at = self._hidden
        for start, end in self._spans(text):
            if start >= hold:
                break
            shown += (text[at:start], self._mark) if start >= at else ()
            at = max(at, end)
        shown.append(text[at:hold])
        self._held, self._hidden = text[hold:], max(0, at - hold)
        return "".join(shown)

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Where known values are, in order; those that overlap are one."""
        hits: list[tuple[int, int]] = []
        for spelling in self._known.spellings if len(text) >= self._known.shortest else ():
            at = text.find(spelling)
            while at >= 0:
                hits.append((at, at + len(spelling)))
                at = text.find(spelling, at + 1)
        spans: list[tuple[int, int]] = []
        for start, end in sorted(hits):
            if spans and start < spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((start, end))
        return spans

    def _hold_from(self, text: str) -> int:
        """Where the end of a text begins that may be the beginning of a known value."""
        beginnings = self._known.beginnings.get(text[-1:], ())
        # Most texts end in none of them, which one call tells.
        held = next(len(word) for word in beginnings if text.endswith(word)) if text.endswith(beginnings) else 0
        return len(text) - held


def _pieces(value: str) -> Iterable[str]:
    if len(value) <= _PIECE:
        return (value,)
    starts = range(0, len(value) - _PIECE, _PIECE - _OVERLAP)
    return (*(value[at : at + _PIECE] for at in starts), value[-_PIECE:])


def _spellings(value: str) -> set[str]:
    """A value plain, in JSON, in a URL, in hexadecimal, and in base64 at each of its three offsets."""
    from urllib.parse import quote, quote_plus

    data = value.encode("utf-8", "surrogatepass")
    found = {value, data.hex(), data.hex().upper(), *_in_base64(data)}
    if value.isprintable() or "\n" in value:
        once = msgspec.json.encode(value.encode("utf-8", "replace").decode()).decode()[1:-1]
        ascii_only = _escaped(once)
        found |= {once, once.replace("/", "\\/"), ascii_only}
        found |= {msgspec.json.encode(text).decode()[1:-1] for text in (once, ascii_only)}
        for encoded in (quote(value, safe=""), quote(value), quote_plus(value)):
            found |= {encoded, _lower_escapes(encoded)}
    return {spelling for spelling in found if len(spelling) >= LEAST_KNOWN}


def _in_base64(value: bytes) -> set[str]:
    """The characters of base64 that depend on this value alone, wherever it begins in what is encoded."""
    from base64 import b64encode

    found: set[str] = set()
    for offset in range(3):
        first, end = -(-offset * 8 // 6), (offset + len(value)) * 8 // 6
        standard = b64encode(b"\0" * offset + value).decode()[first:end]
        found |= {standard, standard.replace("+", "-").replace("/", "_")}
    return found


def _escaped(text: str) -> str:
    """What is not ASCII as `\\u` escapes."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    return "".join(chr(unit) if unit < 128 else f"\\u{unit:04x}" for unit in units)


def _lower_escapes(encoded: str) -> str:
    head, *escapes = encoded.split("%")
    return "".join((head, *(f"%{part[:2].lower()}{part[2:]}" for part in escapes)))
