"""Timeouts that share one event-loop timer, because most never fire; and the cancellation of a step."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from deputy.core.events import Known


_MOST_CANCELLED = 64
"""How many cancelled entries stay in the heap, besides as many as there are others."""


class TimerEntry:
    """A deadline and its callback; None once it has fired or was cancelled."""

    __slots__ = ("at", "callback")

    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback: Callable[[], None] | None = callback


class SharedTimer:
    """The timeouts of one event loop.

    A loop timer per timeout costs a place in the loop's heap, whose entries are compared in Python. This one timer
    stays when a timeout is cancelled, and its own heap compares numbers.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, TimerEntry]] = []
        """The entries by deadline, then in the order in which they were set; some are cancelled."""
        self.count = 0
        """How many entries were ever set."""
        self._pending = 0
        """How many entries are neither fired nor cancelled."""
        self._timer: asyncio.Handle | None = None
        self._next_at = inf

    def set(self, seconds: float, callback: Callable[[], None]) -> TimerEntry:
        """Call `callback` after `seconds`, unless cancelled."""
        return self.set_at(asyncio.get_running_loop().time() + seconds, callback)

    def set_at(self, at: float, callback: Callable[[], None]) -> TimerEntry:
        """Call `callback` at this time of the loop, unless cancelled."""
        entry = TimerEntry(at, callback)
        self.count += 1
        self._pending += 1
        heappush(self._heap, (entry.at, self.count, entry))
        if entry.at < self._next_at:
            self._wake_at(entry.at)
        return entry

    def cancel(self, entry: TimerEntry) -> None:
        """Remove an entry that is no longer needed or has fired."""
        if entry.callback is None:
            return
        entry.callback = None
        self._pending -= 1
        if not self._pending:
            self._heap.clear()
            self._wake_at(inf)
        elif len(self._heap) > _MOST_CANCELLED + 2 * self._pending:
            self._heap = [one for one in self._heap if one[2].callback is not None]
            heapify(self._heap)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[Any]:
        """Like `asyncio.timeout`, but cheaper; no timeout if `seconds` is None."""
        return nullcontext() if seconds is None else _Timeout(self, seconds)

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_at, self._timer = when, None
        if when < inf:
            loop = asyncio.get_running_loop()
            is_up = when <= loop.time()
            self._timer = loop.call_soon(self._fire_due) if is_up else loop.call_at(when, self._fire_due)

    def _fire_due(self) -> None:
        # The loop may fire slightly early, or late.
        now = max(self._next_at, asyncio.get_running_loop().time())
        newest = self.count
        try:
            # What a callback sets fires at the earliest in the next turn of the loop.
            while self._heap and self._heap[0][0] <= now and self._heap[0][1] <= newest:
                entry = heappop(self._heap)[2]
                callback, entry.callback = entry.callback, None
                if callback is not None:
                    self._pending -= 1
                    callback()
        finally:
            if not self._pending:
                self._heap.clear()
            self._wake_at(self._heap[0][0] if self._heap else inf)


class _Timeout:
    """Like `asyncio.timeout`, on a shared timer."""

    __slots__ = ("_cancelling", "_entry", "_is_up", "_seconds", "_task", "_timer")

    def __init__(self, timer: SharedTimer, seconds: float) -> None:
        self._timer = timer
        self._seconds = seconds
        self._is_up = False

    async def __aenter__(self) -> None:
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._cancelling = self._task.cancelling()
        self._entry = self._timer.set(self._seconds, self._stop)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel(self._entry)
        # An outer cancellation wins over our timeout.
        if self._is_up and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _stop(self) -> None:
        self._is_up = True
        self._task.cancel()


class StepCancelled(asyncio.CancelledError):
    """A cancellation that carries the step's event so far, to be recorded at the end of the run."""

    def __init__(self, event: Known) -> None:
        super().__init__()
        self.event = event
