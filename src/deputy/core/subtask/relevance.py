"""Rank texts by relevance to a query (BM25 over stemmed words)."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Sequence

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


SATURATION = 1.2
"""BM25 k1: how fast repeated words stop counting."""
LENGTH_WEIGHT = 0.75
"""BM25 b: how strongly the score is normalized by length."""


def rank(query: str, texts: Sequence[str]) -> list[float]:
    """The score of each text; 0 when it shares no word with the query."""
    return rank_words(set(words_of(query)), [words_of(text) for text in texts])


def rank_words(wanted: Iterable[str], texts: Sequence[Sequence[str]]) -> list[float]:
    """The same for texts that are already split into words."""
    wanted = frozenset(wanted)
    counts = [Counter(word for word in words if word in wanted) for words in texts]
    holders = Counter(word for count in counts for word in count)
    total = len(texts)
    weight = {word: math.log(1 + (total - held + 0.5) / (held + 0.5)) for word, held in holders.items()}
    average = sum(map(len, texts)) / total if total else 0.0
    return [
        sum(weight[word] * _saturated(times, len(words), average) for word, times in count.items())
        for count, words in zip(counts, texts, strict=True)
    ]


def _saturated(times: int, length: int, average: float) -> float:
    relative = length / average if average else 1.0
    return times * (SATURATION + 1) / (times + SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * relative))


def chosen(scores: Sequence[float], sizes: Sequence[int], bound: int, *, share: float = 0.0) -> list[int]:
    """The best texts that fit the bound together, in their original order; each above `share` of the best score."""
    best = max(scores, default=0.0)
    ordered = sorted(
        (index for index, score in enumerate(scores) if score > max(0.0, share * best)),
        key=lambda index: (-scores[index], index),
    )
    taken: list[int] = []
    for index in ordered:
        if sizes[index] <= bound:
            taken.append(index)
            bound -= sizes[index]
    return sorted(taken)
