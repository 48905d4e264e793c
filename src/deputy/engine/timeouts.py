"""Timeouts that share one event-loop timer, because most never fire; and the cancellation of a step."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from deputy.core.events import Known


@dataclass(slots=True, eq=False)
class TimerEntry:
    """A deadline and its callback."""

    at: float
    callback: Callable[[], None]


class SharedTimer:
    """The timeouts of one event loop.

    A loop timer per timeout costs a place in the loop's heap, even after it is cancelled. This one timer stays when a
    timeout is cancelled, and then looks for entries that are due.
    """

    def __init__(self) -> None:
        self._set: dict[TimerEntry, None] = {}
        self._timer: asyncio.Handle | None = None
        self._next_at = inf

    def set(self, seconds: float, callback: Callable[[], None]) -> TimerEntry:
        """Call `callback` after `seconds`, unless cancelled."""
        entry = TimerEntry(asyncio.get_running_loop().time() + seconds, callback)
        self._set[entry] = None
        if entry.at < self._next_at:
            self._wake_at(entry.at)
        return entry

    def cancel(self, entry: TimerEntry) -> None:
        """Remove an entry that is no longer needed or has fired."""
        self._set.pop(entry, None)
        if not self._set:
            self._wake_at(inf)

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
        try:
            for entry in sorted((entry for entry in self._set if entry.at <= now), key=lambda entry: entry.at):
                del self._set[entry]
                entry.callback()
        finally:
            self._wake_at(min((entry.at for entry in self._set), default=inf))


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
