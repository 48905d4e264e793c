"""The clock and the chance that runs work by, outside of tests."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class SystemWorld:
    """The journal's clock, and the wall clock and the chance of this machine."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def random_string(self, letters: str, count: int) -> str:
        """So many letters, drawn at random."""
        # One number for all of them, since every draw asks the system; and so large that no letter is likelier.
        base, number = len(letters), int.from_bytes(os.urandom(count + 8))
        drawn: list[str] = []
        for _ in range(count):
            number, at = divmod(number, base)
            drawn.append(letters[at])
        return "".join(drawn)
