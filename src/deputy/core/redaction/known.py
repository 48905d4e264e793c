"""Known values: hidden wherever they occur, in every usual spelling."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from deputy.core.foreign_text import unsplit
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
        """All texts to hide, short ones first."""
        # A text may be searched without its invisible characters.
        values = {spelling for value in self._values if is_known_secret(value) for spelling in (value, unsplit(value))}
        pieces = (piece for value in values for piece in _pieces(value))
        return tuple(sorted({spelling for piece in pieces for spelling in _spellings(piece)}, key=len))

    @cached_property
    def beginnings(self) -> dict[str, tuple[str, ...]]:
        """All proper prefixes of the spellings by their last character, longest first."""
        found: dict[str, set[str]] = {}
        for spelling in self.spellings:
            for length in range(1, len(spelling)):
                found.setdefault(spelling[length - 1], set()).add(spelling[:length])
        return {last: tuple(sorted(some, key=len, reverse=True)) for last, some in found.items()}

    def occur_in(self, text: str) -> bool:
        """Whether a text has one of them."""
        for spelling in self.spellings:
            if len(spelling) > len(text):
                return False
            if spelling in text:
                return True
        return False


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
        """The text that can be shown after this chunk."""
        text = self._held + chunk
        hold = len(text) if final else self._hold_from(text)
        shown: list[str] = []
        at = self._hidden
        covered = 0
        for start, end in self._hits(text):
            if start >= hold:
                break
            # Values that overlap have one mark.
            if start >= max(at, covered):
                shown += (text[at:start], self._mark)
            covered = max(covered, end)
            at = max(at, end)
        shown.append(text[at:hold])
        self._held, self._hidden = text[hold:], max(0, at - hold)
        return "".join(shown)

    def _hits(self, text: str) -> list[tuple[int, int]]:
        hits: list[tuple[int, int]] = []
        for spelling in self._known.spellings:
            if len(spelling) > len(text):
                break
            at = text.find(spelling)
            while at >= 0:
                hits.append((at, at + len(spelling)))
                at = text.find(spelling, at + 1)
        return sorted(hits)

    def _hold_from(self, text: str) -> int:
        """The start of the end of a text that may become a known value."""
        beginnings = self._known.beginnings.get(text[-1:], ())
        # One call excludes most texts.
        held = next(len(word) for word in beginnings if text.endswith(word)) if text.endswith(beginnings) else 0
        return len(text) - held


def _pieces(value: str) -> Iterable[str]:
    if len(value) <= _PIECE:
        return (value,)
    starts = range(0, len(value) - _PIECE, _PIECE - _OVERLAP)
    return (*(value[at : at + _PIECE] for at in starts), value[-_PIECE:])


def _spellings(value: str) -> set[str]:
    """A value plain, in JSON, in JSON in JSON, in a URL, in hexadecimal, and in base64 at each of its three offsets."""
    from base64 import b64encode
    from json import dumps
    from urllib.parse import quote, quote_plus

    data = value.encode("utf-8", "surrogatepass")
    found = {value, data.hex(), data.hex().upper()}
    for offset in range(3):
        # The characters of base64 that depend on this value alone.
        first, end = -(-offset * 8 // 6), (offset + len(data)) * 8 // 6
        standard = b64encode(b"\0" * offset + data).decode()[first:end]
        found |= {standard, standard.replace("+", "-").replace("/", "_")}
    once = {dumps(value, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)}
    found |= (
        once | {text.replace("/", "\\/") for text in once} | {dumps(text, ensure_ascii=False)[1:-1] for text in once}
    )
    for encoded in (quote(data, safe=""), quote(data), quote_plus(data)):
        found |= {encoded, re.sub("%..", lambda escape: escape[0].lower(), encoded)}
    return {spelling for spelling in found if len(spelling) >= LEAST_KNOWN}
