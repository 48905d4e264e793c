"""Virtual time: an event loop whose clock jumps to the next timer, so that hours pass in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from random import Random

_Result = TypeVar("_Result")

EPOCH = 1_700_000_000.0


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that never sleeps: where it would, it moves the clock instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("nothing is left to happen: every task waits for something that never comes")
        if not ready and timeout is not None and timeout > 0:
            self.now += timeout
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _JumpingSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run_in_virtual_time(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine on a loop where waiting takes no time; only for code that does no real input or output."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(main)


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
