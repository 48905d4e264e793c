"""Clock and chance for simulations: the loop's own time, and draws that a seed decides."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

EPOCH = 1_700_000_000.0


class VirtualWorld:
    """A world that a seed replays exactly."""

    def __init__(
        self, chance: Random, *, stands_at: float | None = None, jump: Callable[[float], float] | None = None
    ) -> None:
        """`jump` gives how far the wall clock is wrong, by the seconds that have passed."""
        self._chance = chance
        self._stands_at = stands_at
        self._jump = jump

    def now(self) -> float:
        """The journal's clock, moved by the loop's clock alone, unless it stands still."""
        if self._stands_at is not None:
            return self._stands_at
        return EPOCH + asyncio.get_running_loop().time()

    def wall(self) -> float:
        """The wall clock: the same, until it jumps."""
        now = self.now()
        return now if self._jump is None else now + self._jump(now - EPOCH)

    def random_string(self, letters: str, count: int) -> str:
        """So many letters, drawn as the seed says."""
        return "".join(self._chance.choices(letters, k=count))
