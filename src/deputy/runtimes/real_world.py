"""The clock and the chance that runs work by, outside of tests."""

from __future__ import annotations

import time
from random import SystemRandom


class RealWorld:
    """The clock and the chance of this machine."""

    def __init__(self) -> None:
        self._random = SystemRandom()

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def draw(self, letters: str, count: int) -> str:
        """So many letters, drawn at random."""
        # One number for all of them, since every draw asks the system.
        base, number = len(letters), self._random.randrange(len(letters) ** count)
        drawn: list[str] = []
        for _ in range(count):
            number, at = divmod(number, base)
            drawn.append(letters[at])
        return "".join(drawn)
