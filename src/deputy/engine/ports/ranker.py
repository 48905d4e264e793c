"""What says how relevant texts are to a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Ranker(Protocol):
    """Something that tells which texts matter for a query: by their words, by embeddings, or however."""

    async def rank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """How relevant each text is; 0 where it is not. Only how they compare counts."""
        ...
