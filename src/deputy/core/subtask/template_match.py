"""Match a request to a template by type, hints and description, through an index."""

from __future__ import annotations

import math
from collections import OrderedDict
from heapq import nlargest
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.subtask.relevance import words_of
from deputy.core.subtask.template import ATOMIC, Template

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deputy.core.subtask.subtask_request import SubtaskRequest

THRESHOLD = 0.3
TYPE_WEIGHT, HINTS_WEIGHT, DESCRIPTION_WEIGHT = 0.4, 0.3, 0.3
GENERIC = 0.25
"""The type score of a generic template."""
_REMEMBERED = 4096
_DIGITS = 6
"""Scores are rounded to this many digits: the order of summation must not decide."""
_SLACK = 2 * 10**-_DIGITS
_FEW = 16
"""Fewer candidates are not filtered."""


class TemplateScore(Struct, frozen=True, kw_only=True):
    """The score of a template for a request; each part is between 0 and 1."""

    template: Template
    total: float
    type: float
    hints: float
    description: float
    shared: tuple[str, ...] = ()
    """The words in both descriptions."""


class TemplateIndex:
    """An index of atomic templates; the same request always finds the same template."""

    def __init__(self, templates: Iterable[Template], *, threshold: float = THRESHOLD) -> None:
        # Sorted by name: of two equal scores the first name wins.
        ordered = sorted((template for template in templates if template.is_atomic), key=lambda one: one.name)
        self._threshold = threshold
        self._entries = [_entry(template) for template in ordered]
        self._by_type: dict[str, list[int]] = {}
        self._by_name: dict[str, list[int]] = {}
        self._by_word: dict[str, list[int]] = {}
        for index, entry in enumerate(self._entries):
            for table, keys in (
                (self._by_type, entry.types),
                (self._by_name, entry.names),
                (self._by_word, entry.words),
            ):
                for key in keys:
                    table.setdefault(key, []).append(index)
        total = len(self._entries)
        self._weights = {word: math.log(1 + total / len(found)) for word, found in self._by_word.items()}
        self._generic = GENERIC if any(entry.is_generic for entry in self._entries) else 0.0
        self._norms = [_norm(self._weights[word] for word in entry.words) for entry in self._entries]
        self._remembered: OrderedDict[tuple[str, str, tuple[str, ...], str], TemplateScore | None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def match(self, request: SubtaskRequest) -> TemplateScore | None:
        """The best template, ties by name; None when none reaches the threshold."""
        key = (request.type, request.subtype, request.template_hints, request.description)
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return self._remembered[key]
        best = self.best(request, 1)
        found = best[0] if best and best[0].total >= self._threshold else None
        self._remembered[key] = found
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)
        return found

    def best(self, request: SubtaskRequest, count: int) -> list[TemplateScore]:
        """The best templates in order, also those below the threshold."""
        query = _Query(request, self._weights)
        scores = [self._score(query, index) for index in self._finalists(query, count)]
        return sorted(scores, key=lambda score: (-score.total, score.template.name))[:count]

    def _finalists(self, query: _Query, count: int) -> list[int]:
        """The templates that can be among the best `count`.

        Words are counted rarest first. When the remaining words cannot lift a new template above the best ones, they
        are counted only for the templates already found, and those that cannot catch up are dropped.
        """
        sums = self._named(query)
        is_closed = False
        for at, word in enumerate(query.rarest_first):
            holders, norms = self._by_word[word], self._norms
            if len(sums) >= count and len(sums) + len(holders) > _FEW:
                left = query.most_left(at, self._generic)
                least = nlargest(count, sums.values())[-1] - _SLACK
                is_closed = is_closed or left < least
                # Filtering costs about as much as counting a word, so it is done for every second word.
                if is_closed and at % 2:
                    sums = {index: total for index, total in sums.items() if total + left >= least}
            if is_closed and len(holders) > len(sums):
                holders = [index for index in sums if word in self._entries[index].words]
            elif is_closed:
                holders = [index for index in holders if index in sums]
            share = query.description_weight * self._weights[word] ** 2 / query.norm
            for index in holders:
                sums[index] = sums.get(index, 0.0) + share / norms[index]
        if not sums:
            return []
        least = nlargest(count, sums.values())[-1] - _SLACK - self._generic * query.type_weight
        return [index for index, total in sums.items() if total >= least]

    def _named(self, query: _Query) -> dict[int, float]:
        """The scores by type and hints alone."""
        sums = dict.fromkeys(self._by_type.get(query.type, ()), query.type_weight)
        for hint in query.hints:
            share = query.hints_weight / len(query.hints)
            for index in self._by_name.get(hint, ()):
                sums[index] = sums.get(index, 0.0) + share
        return sums

    def _score(self, query: _Query, index: int) -> TemplateScore:
        entry = self._entries[index]
        shared = query.words & entry.words
        dot = sum(self._weights[word] ** 2 for word in sorted(shared))
        likeness = dot / (query.norm * self._norms[index]) if shared else 0.0
        typed = 1.0 if query.type in entry.types else GENERIC if entry.is_generic else 0.0
        hinted = sum(hint in entry.names for hint in query.hints) / len(query.hints) if query.hints else 0.0
        total = query.type_weight * typed + query.hints_weight * hinted + query.description_weight * likeness
        return TemplateScore(
            template=entry.template,
            total=round(total, _DIGITS),
            type=typed,
            hints=round(hinted, _DIGITS),
            description=round(likeness, _DIGITS),
            shared=tuple(sorted(shared)),
        )


class _Entry(Struct, frozen=True):
    """A template in the index."""

    template: Template
    types: frozenset[str]
    """Types of requests that it matches."""
    names: frozenset[str]
    """Hints that it matches."""
    words: frozenset[str]
    is_generic: bool


def _entry(template: Template) -> _Entry:
    named = (template.name, template.type, template.subtype, *template.hints)
    return _Entry(
        template,
        frozenset(map(_folded, (template.name, template.type))) - {ATOMIC},
        frozenset(_folded(name) for name in named if name),
        frozenset(words_of(f"{template.description} {template.name} {' '.join(template.hints)}")),
        template.type == ATOMIC,
    )


class _Query:
    """A request as a query; without hints, their weight goes to type and description."""

    def __init__(self, request: SubtaskRequest, weights: dict[str, float]) -> None:
        self.type = _folded(request.type)
        self.hints = list(dict.fromkeys(map(_folded, request.template_hints)))
        self.words = frozenset(words_of(request.description))
        # A word that no template has weighs as much as the rarest word.
        rarest = max(weights.values(), default=1.0)
        self.norm = _norm(weights.get(word, rarest) for word in self.words)
        said = TYPE_WEIGHT + DESCRIPTION_WEIGHT + (HINTS_WEIGHT if self.hints else 0.0)
        self.type_weight = TYPE_WEIGHT / said
        self.hints_weight = HINTS_WEIGHT / said if self.hints else 0.0
        self.description_weight = DESCRIPTION_WEIGHT / said
        self.rarest_first = sorted(self.words & weights.keys(), key=lambda word: (-weights[word], word))
        self._weights = [weights[word] for word in self.rarest_first]

    def most_left(self, at: int, generic: float) -> float:
        """The most that the words from here on, and being generic, can add to a score."""
        likeness = _norm(self._weights[at:]) / self.norm if self.norm else 0.0
        return self.type_weight * generic + self.description_weight * likeness


def _folded(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def _norm(weights: Iterable[float]) -> float:
    return math.sqrt(sum(weight * weight for weight in weights))
