"""Rank texts by the words that they share with a query."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deputy.core.subtask.relevance import rank

if TYPE_CHECKING:
    from collections.abc import Sequence


class WordRanker:
    """Ranks by BM25."""

    async def rank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """The relevance of each text to the query, computed in a thread."""
        return await asyncio.to_thread(rank, query, texts)
