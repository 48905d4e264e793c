"""Where JSON objects lie in a text that is not JSON as a whole, found in one pass.

The work is linear on any text. An attempt that starts at a brace is given up at the first token that cannot be
JSON, and the search goes on from the last token that could: the containers still open there would fail at the same
token, and the only other reading of what was passed, with quotes opening where they closed, can start in that last
token alone.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator


class Span(NamedTuple):
    """Where an object lies, or where one begins that breaks off after a key."""

    start: int
    end: int
    is_whole: bool


def find_objects(text: str) -> Iterator[Span]:
    """The outermost objects of a text, in order; those without members are left out.

    Whether one is good JSON in every detail is for the decoder to say.
    """
    grammar = _grammar()
    at = 0
    while opening := grammar.opening.search(text, at):
        start = opening.start()
        at, is_whole = _follow(text, start, grammar)
        if is_whole or grammar.key.match(text, start):
            yield Span(start, at, is_whole)


def _follow(text: str, start: int, grammar: _Grammar) -> tuple[int, bool]:
    """How far the object that opens at `start` makes sense, and whether that is to its end."""
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
    """One pattern per place in the grammar; the last character of a match says what comes next."""

    opening: re.Pattern[str]
    key: re.Pattern[str]
    entry: dict[str, re.Pattern[str]]
    after: dict[str, re.Pattern[str]]


@cache
def _grammar() -> _Grammar:
    # Possessive quantifiers never give back what they took, so no match is tried twice.
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
