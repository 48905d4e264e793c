"""Limits in time that are nearly all called off before they are up: one timer of the loop stands for all of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


@dataclass(slots=True, eq=False)
class TimerEntry:
    """When something is up, and what happens then."""

    at: float
    callback: Callable[[], None]


class SharedTimer:
    """The alarms of one loop.

    A timer for each costs a place in the loop's heap, which is kept in order by comparisons in Python, and stays there
    when it is called off. The one timer here stays where it is when an alarm is called off, and then looks who is due.
    """

    def __init__(self) -> None:
        self._set: dict[TimerEntry, None] = {}
        self._timer: asyncio.Handle | None = None
        self._next_at = inf

    def set(self, seconds: float, callback: Callable[[], None]) -> TimerEntry:
        """Have something called after so many seconds, unless it is called off."""
        entry = TimerEntry(asyncio.get_running_loop().time() + seconds, callback)
        self._set[entry] = None
        if entry.at < self._next_at:
            self._wake_at(entry.at)
        return entry

    def cancel(self, entry: TimerEntry) -> None:
        """It is not needed any more, or has rung."""
        self._set.pop(entry, None)
        if not self._set:
            self._wake_at(inf)

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_at, self._timer = when, None
        if when < inf:
            loop = asyncio.get_running_loop()
            is_up = when <= loop.time()
            self._timer = loop.call_soon(self._fire_due) if is_up else loop.call_at(when, self._fire_due)

    def _fire_due(self) -> None:
        # The loop may come a little before its time, and long after it.
        now = max(self._next_at, asyncio.get_running_loop().time())
        try:
            for entry in sorted((entry for entry in self._set if entry.at <= now), key=lambda entry: entry.at):
                del self._set[entry]
                entry.callback()
        finally:
            self._wake_at(min((entry.at for entry in self._set), default=inf))


def shared_timer() -> SharedTimer:
    """Those of the running loop."""
    loop = asyncio.get_running_loop()
    found = _BY_LOOP.get(loop)
    if found is None:
        # One that was closed with alarms set would be kept by them.
        for other in [other for other in _BY_LOOP if other.is_closed()]:
            del _BY_LOOP[other]
        found = _BY_LOOP[loop] = SharedTimer()
    return found


_BY_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, SharedTimer] = WeakKeyDictionary()
"""They belong to a loop as its timers do; whoever sets one has nothing else in common with the others."""


class Timeout:
    """As `asyncio.timeout`, with an alarm in place of a timer of its own."""

    __slots__ = ("_cancelling", "_entry", "_is_up", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_up = False

    async def __aenter__(self) -> None:
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._cancelling = self._task.cancelling()
        self._timer = shared_timer()
        self._entry = self._timer.set(self._seconds, self._stop)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel(self._entry)
        # Whoever else wanted the task cancelled is not answered with a timeout.
        if self._is_up and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _stop(self) -> None:
        self._is_up = True
        self._task.cancel()
