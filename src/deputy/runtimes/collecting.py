"""How often the interpreter looks for garbage: less often while many runs are at work, whose objects are all in use."""

from __future__ import annotations

import gc

MANY = 100
"""From how many runs at work on it is looked for less often; with half as many it is as before."""
SELDOM = 10_000
"""After how many new objects it is looked for then."""


class Collecting:
    """Sets how often the interpreter looks for garbage by how many runs are at work, unless somebody else has."""

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None

    def see(self, at_work: int) -> None:
        """So many runs are at work now."""
        if self._before is None:
            if at_work >= MANY:
                self._look_seldom()
        elif at_work < MANY // 2:
            self.as_before()

    def _look_seldom(self) -> None:
        first, *others = self._before = gc.get_threshold()
        # Who has switched it off, or looks less often still, has reasons.
        if 0 < first < SELDOM:
            gc.set_threshold(SELDOM, *others)

    def as_before(self) -> None:
        """Look as often as before, unless somebody else has set it since."""
        before, self._before = self._before, None
        if before is not None and gc.get_threshold() == (SELDOM, *before[1:]):
            gc.set_threshold(*before)
