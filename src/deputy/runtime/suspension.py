"""Runs that only wait are put aside: until a message comes, or until a child ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic

from deputy.engine.ports import L

if TYPE_CHECKING:
    from deputy.runtime.active_run import ActiveRun

SUSPEND_AFTER_SECONDS = 0.05
SUSPEND_SECONDS = 5.0
"""How long a run only waits for its children before it is put aside: to take it up again costs its history."""
SUSPEND_SOON_SECONDS = 0.25
"""The same when many wait."""
MANY_WAITING = 256
_RECORD_SECONDS = 0.002
"""How much longer a run waits for every record of its history."""


class SuspendedRuns(Generic[L]):
    """Knows which runs were put aside here, and when the next ones are."""

    def __init__(self, suspend_seconds: float) -> None:
        self._suspend_seconds = suspend_seconds
        self._patient = 0
        """How many runs only wait, and are not put aside yet."""
        self._parked: set[str] = set()
        """Runs put aside until a message comes: anybody may take them up."""
        self._suspended: set[str] = set()
        """Runs put aside until a child ends: they stay this process's, and this is all that is in memory of them."""

    def has(self, run: str) -> bool:
        """Whether a run was put aside here."""
        return run in self._parked or run in self._suspended

    def is_suspended(self, run: str | None) -> bool:
        """Whether a run was put aside here until a child ends."""
        return run in self._suspended

    def suspend(self, run: str) -> None:
        """A run has been put aside until a child ends."""
        self._suspended.add(run)

    def suspend_now(self, run: str) -> None:
        """A run has been put aside until a message comes."""
        self._parked.add(run)

    def forget(self, run: str) -> None:
        """A run has been taken up again, or has ended."""
        self._parked.discard(run)
        self._suspended.discard(run)

    def suspend_soon(self, work: ActiveRun[L]) -> None:
        """Put a run aside if it still only waits after a while."""
        if work.is_parking or not work.only_waits:
            return
        loop = asyncio.get_running_loop()
        work.waits_since = loop.time()
        due = work.waits_since + self._delay_seconds(work)
        if work.parking is not None and work.parking.when() <= due:
            # It looks by itself how long it has been since.
            return
        self._check_again(work, due)

    def _check_again(self, work: ActiveRun[L], due: float) -> None:
        self.cancel_suspend(work)
        self._patient += 1
        work.parking = asyncio.get_running_loop().call_at(due, self._suspend, work)

    def cancel_suspend(self, work: ActiveRun[L]) -> None:
        """Look at it no more."""
        if work.parking is not None:
            work.parking.cancel()
            work.parking = None
            self._patient -= 1

    def _delay_seconds(self, work: ActiveRun[L]) -> float:
        """How long a run that only waits stays in memory."""
        if not work.context.joining:
            return SUSPEND_AFTER_SECONDS
        usual = self._suspend_seconds
        if self._patient > MANY_WAITING:
            usual = min(usual, SUSPEND_SOON_SECONDS)
        return usual and usual + _RECORD_SECONDS * work.lease.state.seq

    def _suspend(self, work: ActiveRun[L]) -> None:
        self.cancel_suspend(work)
        if work.task is None or work.is_parking or not work.only_waits:
            return
        due = work.waits_since + self._delay_seconds(work)
        if due > asyncio.get_running_loop().time():
            self._check_again(work, due)
            return
        work.is_parking = True
        work.awaited = tuple(work.context.joining)
        work.context.is_suspended = True
        work.task.cancel()
