"""Split text into stemmed words, without stop words."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re

LONGEST = 40
"""A longer word is data."""

_COMMON = """
a about after all also an and any are as at be because been before being but by can could did do does doing for from
had has have he her him his how i if in into is it its just let like make may me more most must my need no not of on
one only or other our out over please shall she should so some such than that the their them then there these they
this those to too under up us use used using very want was we were what when where which while who will with would yes
you your
"""
_ENDINGS = ("ations", "ation", "ings", "ing", "edly", "ied", "ies", "ed", "es", "ly", "s")
_STEM = 3
"""The minimum length of a stem."""


@cache
def _common() -> frozenset[str]:
    return frozenset(_COMMON.split())


@cache
def _pattern() -> re.Pattern[str]:
    import re

    # parseHttpHeader and parse_http_header are three words.
    return re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")


def words_of(text: str) -> list[str]:
    """The stemmed words of a text in order, with repetitions, without stop words."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    words = (word.lower() for word in _pattern().findall(text) if len(word) <= LONGEST)
    common = _common()
    return [stem(word) for word in words if word not in common]


def stem(word: str) -> str:
    """A word without its ending."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM:
            return word[: -len(ending)].removesuffix("e")
    return word.removesuffix("e") if len(word) > _STEM + 1 else word
