"""Find JSON objects in a text that is not JSON as a whole, in linear time.

A match that starts at a brace ends at the first token that cannot be JSON, and the search continues from the token
before it: the containers that are still open would fail at the same token, and a different reading of the quotes can
only start in that last token.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator


class Span(NamedTuple):
    """The place of an object; not whole if the object is cut off after a key."""

    start: int
    end: int
    is_whole: bool


def find_objects(text: str) -> Iterator[Span]:
    """The outermost objects of a text, in order, without empty ones; the decoder validates them."""
    grammar = _grammar()
    at = 0
    while opening := grammar.opening.search(text, at):
        start = opening.start()
        at, is_whole = _follow(text, start, grammar)
        if is_whole or grammar.key.match(text, start):
            yield Span(start, at, is_whole)


def _follow(text: str, start: int, grammar: _Grammar) -> tuple[int, bool]:
    """How far the object that opens at `start` is valid, and whether that is its end."""
    inside = ["{"]
    at = start + 1
    while True:
        step = grammar.entry[inside[-1]].match(text, at)
        if step is None:
            return at, False
        at = step.end()
        last = text[at - 1]
        if last in "{[":
            inside.append(last)
        while last in "}]":
            inside.pop()
            if not inside:
                return at, True
            step = grammar.after[inside[-1]].match(text, at)
            if step is None:
                return at, False
            at = step.end()
            last = text[at - 1]


class _Grammar(NamedTuple):
    """One pattern per state; the last character of a match determines the next state."""

    opening: re.Pattern[str]
    key: re.Pattern[str]
    entry: dict[str, re.Pattern[str]]
    after: dict[str, re.Pattern[str]]


@cache
def _grammar() -> _Grammar:
    # Possessive quantifiers do not backtrack.
    import re

    space = r"[ \t\r\n]*+"
    string = r'"(?:[^"\\]++|\\.)*+"'
    scalar = rf"(?:{string}|-?[0-9][0-9.eE+-]*+|true|false|null)"
    member = rf"{space}(?:{string}{space}:{space}(?:[{{\[]|{scalar}{space}[,}}])|}})"
    item = rf"{space}(?:[{{\[]|{scalar}{space}[,\]]|\])"
    return _Grammar(
        opening=re.compile(rf'\{{{space}"'),
        key=re.compile(rf"\{{{space}{string}{space}:", re.DOTALL),
        entry={"{": re.compile(member, re.DOTALL), "[": re.compile(item, re.DOTALL)},
        after={"{": re.compile(rf"{space}[,}}]"), "[": re.compile(rf"{space}[,\]]")},
    )
