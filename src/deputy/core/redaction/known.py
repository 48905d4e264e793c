"""Known values: hidden wherever they occur, in every usual spelling."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from deputy.core.foreign_text import unsplit
from deputy.core.redaction.names import LEAST_KNOWN, is_known_secret

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ahocorasick_rs import BytesAhoCorasick

_PIECE = 256
_OVERLAP = 16
"""A longer value is known by pieces that overlap, so that a stream never holds back more than one of them."""

Place: TypeAlias = tuple[int, int, int]
"""Where a secret may start: the start, what judges it, and the end of what was found there."""
KNOWN = -1
"""What judges a known value: it is one. No trigger at the same place is judged before it."""


class KnownValues:
    """The spellings of known values."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values = {value.strip() for value in values}

    @cached_property
    def _spellings(self) -> tuple[str, ...]:
        """All texts to hide."""
        # A text is searched without its invisible characters, but an encoded value has them.
        values = {spelling for value in self._values if is_known_secret(value) for spelling in (value, unsplit(value))}
        pieces = {value[at : at + _PIECE] for value in values for at in _piece_starts(len(value))}
        return tuple({spelling for piece in pieces for spelling in _spellings(piece)})

    @cached_property
    def _beginnings(self) -> dict[str, tuple[str, ...]]:
        """All proper prefixes of the spellings by their last character, longest first."""
        found: dict[str, set[str]] = {}
        for spelling in self._spellings:
            for length in range(1, len(spelling)):
                found.setdefault(spelling[length - 1], set()).add(spelling[:length])
        return {last: tuple(sorted(some, key=len, reverse=True)) for last, some in found.items()}

    @cached_property
    def _automaton(self) -> BytesAhoCorasick:
        from ahocorasick_rs import BytesAhoCorasick, Implementation

        spellings = (spelling.encode("ascii", "replace") for spelling in self._spellings)
        return BytesAhoCorasick(spellings, implementation=Implementation.ContiguousNFA)

    def places(self, text: str, at: int = 0) -> list[Place]:
        """Where known values are in a text from here on."""
        if not self._spellings:
            return []
        found = self._automaton.find_matches_as_indexes(text[at:].encode("ascii", "replace"), overlapping=True)
        # The automaton takes each character that is not ASCII for a question mark.
        return [
            (at + start, KNOWN, at + end)
            for index, start, end in found
            if text.startswith(self._spellings[index], at + start)
        ]

    def begun(self, text: str) -> int:
        """The length of the end of a text that may become a known value."""
        beginnings = self._beginnings.get(text[-1:], ())
        # One call excludes most texts.
        return next(len(word) for word in beginnings if text.endswith(word)) if text.endswith(beginnings) else 0


def _piece_starts(length: int) -> Iterable[int]:
    return (0,) if length <= _PIECE else (*range(0, length - _PIECE, _PIECE - _OVERLAP), length - _PIECE)


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
    found |= once | {text.replace("/", "\\/") for text in once} | {dumps(x, ensure_ascii=False)[1:-1] for x in once}
    for encoded in (quote(data, safe=""), quote(data), quote_plus(data)):
        found |= {encoded, re.sub("%..", lambda escape: escape[0].lower(), encoded)}
    return {spelling for spelling in found if len(spelling) >= LEAST_KNOWN}
