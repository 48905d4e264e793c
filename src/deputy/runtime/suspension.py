"""Suspend runs that only wait, until a message arrives or a child ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic

from deputy.engine.ports import L

if TYPE_CHECKING:
    from deputy.runtime.active_run import ActiveRun

SUSPEND_AFTER_SECONDS = 0.05
SUSPEND_SECONDS = 5.0
"""How long a run waits for children before it is suspended: resuming it costs a replay."""
SUSPEND_SOON_SECONDS = 0.25
MANY_WAITING = 256
_RECORD_SECONDS = 0.002
"""Additional wait per record of the history."""


class SuspendedRuns(Generic[L]):
    """The suspended runs of this process, and the timers that suspend further ones."""

    def __init__(self, suspend_seconds: float) -> None:
        self._suspend_seconds = suspend_seconds
        self._patient = 0
        """How many waiting runs are not suspended yet."""
        self._parked: set[str] = set()
        """Runs suspended until a message arrives: any process may resume them."""
        self._suspended: set[str] = set()
        """Runs suspended until a child ends: this process keeps their lease, and only their ids in memory."""

    def has(self, run: str) -> bool:
        """Whether a run is suspended here."""
        return run in self._parked or run in self._suspended

    @property
    def waiting(self) -> frozenset[str]:
        """The runs suspended here until a message arrives."""
        return frozenset(self._parked)

    def is_suspended(self, run: str | None) -> bool:
        """Whether a run is suspended here until a child ends."""
        return run in self._suspended

    def suspend(self, run: str) -> None:
        """Note a run as suspended until a child ends."""
        self._suspended.add(run)

    def suspend_now(self, run: str) -> None:
        """Note a run as suspended until a message arrives."""
        self._parked.add(run)

    def forget(self, run: str) -> None:
        """Forget a run that was resumed or has ended."""
        self._parked.discard(run)
        self._suspended.discard(run)

    def suspend_soon(self, work: ActiveRun[L]) -> None:
        """Suspend a run if it still only waits after a while."""
        if work.is_parking or not work.only_waits:
            return
        loop = asyncio.get_running_loop()
        work.waits_since = loop.time()
        due = work.waits_since + self._delay_seconds(work)
        if work.parking is not None and work.parking.when() <= due:
            # The earlier timer computes the remaining wait itself.
            return
        self._check_again(work, due)

    def suspend_at_once(self, work: ActiveRun[L]) -> None:
        """Suspend a run that only waits."""
        self.cancel_suspend(work)
        if work.task is not None and not work.is_parking and work.only_waits:
            self._park(work, work.task)

    def _check_again(self, work: ActiveRun[L], due: float) -> None:
        self.cancel_suspend(work)
        self._patient += 1
        work.parking = asyncio.get_running_loop().call_at(due, self._suspend, work)

    def cancel_suspend(self, work: ActiveRun[L]) -> None:
        """Cancel the suspension timer."""
        if work.parking is not None:
            work.parking.cancel()
            work.parking = None
            self._patient -= 1

    def _delay_seconds(self, work: ActiveRun[L]) -> float:
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
        self._park(work, work.task)

    def _park(self, work: ActiveRun[L], task: asyncio.Task[None]) -> None:
        work.is_parking = True
        work.awaited = tuple(work.context.joining)
        work.context.is_suspended = True
        task.cancel()
