"""The services that subtask requests need: templates, ranking, and facts about models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from deputy.core.approval import PriceBounds
from deputy.core.subtask.template_match import TemplateIndex

CHAIN_SECONDS = 3600.0
"""The default timeout of a chain of subtasks."""


class Ranker(Protocol):
    """Scores texts for a query: by words, by embeddings, or otherwise."""

    async def rank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """One score per text, 0 if irrelevant; only the order counts."""
        ...


class Subtasks(Struct, frozen=True, kw_only=True):
    """Templates, ranking, and facts about models."""

    templates: Callable[[], Awaitable[TemplateIndex]]
    """Loads the templates once."""
    ranker: Ranker
    window_of: Callable[[str], int | None]
    """The context window of a model; raises UsageError if there is no such model."""
    missing_key: Callable[[str], str | None]
    prices_of: Callable[[str], PriceBounds]
    has_default: bool = True
    """Whether the default template is used when no template matches."""
    seconds: float = CHAIN_SECONDS
