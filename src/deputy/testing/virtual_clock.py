"""Virtual time: an event loop whose clock jumps to the next timer, and a seeded World."""

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
    """A selector that moves the clock instead of sleeping."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("deadlock: every task waits, and no timer is set")
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
    """Run a coroutine in virtual time; only for code without real input and output."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(main)


class VirtualWorld:
    """A World with the loop's time and seeded randomness."""

    def __init__(
        self, chance: Random, *, stands_at: float | None = None, jump: Callable[[float], float] | None = None
    ) -> None:
        """`jump` maps the seconds passed to the error of the wall clock."""
        self._chance = chance
        self._stands_at = stands_at
        self._jump = jump

    def now(self) -> float:
        """The journal's clock: the loop's time, or the fixed `stands_at`."""
        if self._stands_at is not None:
            return self._stands_at
        return EPOCH + asyncio.get_running_loop().time()

    def wall(self) -> float:
        """The wall clock: `now` plus `jump`."""
        now = self.now()
        return now if self._jump is None else now + self._jump(now - EPOCH)

    def random_string(self, letters: str, count: int) -> str:
        """A random string from the seed."""
        return "".join(self._chance.choices(letters, k=count))
