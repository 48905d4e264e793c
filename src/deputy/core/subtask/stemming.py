"""Texts as the words that tell one from another: lower case, without endings and without words that all texts have."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re

LONGEST = 40
"""A longer run of letters is data, not a word."""

_COMMON = """
a about after all also an and any are as at be because been before being but by can could did do does doing for from
had has have he her him his how i if in into is it its just let like make may me more most must my need no not of on
one only or other our out over please shall she should so some such than that the their them then there these they
this those to too under up us use used using very want was we were what when where which while who will with would yes
you your
"""
_ENDINGS = ("ations", "ation", "ings", "ing", "edly", "ied", "ies", "ed", "es", "ly", "s")
_STEM = 3
"""What is left of a word without its ending is at least so long."""


@cache
def _common() -> frozenset[str]:
    return frozenset(_COMMON.split())


@cache
def _pattern() -> re.Pattern[str]:
    import re

    # An identifier is the words it is made of: parseHttpHeader and parse_http_header are three.
    return re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")


def words_of(text: str) -> list[str]:
    """The telling words of a text, in their order, as often as they stand there."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    words = (word.lower() for word in _pattern().findall(text) if len(word) <= LONGEST)
    common = _common()
    return [stem(word) for word in words if word not in common]


def stem(word: str) -> str:
    """A word without the ending that its forms differ in."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM:
            return word[: -len(ending)].removesuffix("e")
    return word.removesuffix("e") if len(word) > _STEM + 1 else word
