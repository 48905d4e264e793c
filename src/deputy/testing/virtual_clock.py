"""Virtual time: an event loop whose clock jumps to the next timer, so that hours pass in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

_Result = TypeVar("_Result")


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
