"""Clock and chance for simulations: the loop's own time, and draws that a seed decides."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

EPOCH = 1_700_000_000.0


class VirtualWorld:
    """A world that a seed replays exactly."""

    def __init__(self, chance: Random, *, stands_at: float | None = None) -> None:
        self._chance = chance
        self._stands_at = stands_at

    def now(self) -> float:
        """Seconds since 1970, moved by the loop's clock alone, unless it stands still."""
        if self._stands_at is not None:
            return self._stands_at
        return EPOCH + asyncio.get_running_loop().time()

    def draw(self, letters: str, count: int) -> str:
        """So many letters, drawn as the seed says."""
        return "".join(self._chance.choices(letters, k=count))
