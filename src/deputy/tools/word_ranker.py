"""Relevance by the words that texts share with a query, off the loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deputy.core.subtask.relevance import rank

if TYPE_CHECKING:
    from collections.abc import Sequence


class WordRanker:
    """Ranks by BM25: no model, no network, the same for the same texts."""

    async def rank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """How relevant each text is to the query."""
        return await asyncio.to_thread(rank, query, texts)
