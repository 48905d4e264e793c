"""Rank texts by relevance to a query (BM25)."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from deputy.core.subtask.stemming import words_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
