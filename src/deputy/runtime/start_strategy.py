"""Where runs start: in this process, or on the workers of a queue."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Generic

from deputy.engine.ports import L

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.engine.ports import Journal, PlacingJournal, RunStart
    from deputy.runtime.active_run import ActiveRun
    from deputy.runtime.supervisor import RunSupervisor


class Here(Generic[L]):
    """Starts every run in this process."""

    def __init__(self, supervisor: RunSupervisor[L], journal: Journal[L]) -> None:
        self._supervisor = supervisor
        self._journal = journal

    async def submit(self, run: str, start: RunStart) -> bool:
        """Create and start a run; False if a run with this id exists already."""
        with self._supervisor.starting(run):
            lease = await self._journal.begin(run, start)
            if lease is not None:
                self._supervisor.start(lease, start)
        return lease is not None

    def start_child(self, lease: L, start: RunStart) -> None:
        """Start a child that was just created."""
        self._supervisor.start(lease, start)

    async def begin_round(self, lease: L) -> None:
        """Start the round that was just recorded."""
        await self._supervisor.resume_run(lease)

    async def place(self, run: str) -> bool | None:
        """Let workers continue a run; None when this process must do it."""
        return None

    async def suspend(self, work: ActiveRun[L]) -> bool:
        """Note that a run only waits; False when what it waits for has come."""
        run, parking = work.lease.run, self._supervisor.parking
        if work.awaited:
            parking.suspend(run)
        else:
            parking.suspend_now(run)
            await self._journal.release(work.lease)
        return True

    async def let_go(self, lease: L) -> None:
        """Release the lease of a run that was not started."""
        await self._journal.release(lease)

    async def carry_out(self, run: str, number: int) -> None:
        """Nothing: no run of this journal is placed."""

    async def drain(self, seconds: float) -> None:
        """Nothing: no run of this journal can be handed over."""


class Placed(Here[L]):
    """Places runs that have a queue: they start when the engine hands them to this process, or to another worker.

    A run without a queue stays here, with its children.
    """

    def __init__(
        self,
        supervisor: RunSupervisor[L],
        journal: Journal[L],
        placing: PlacingJournal[L],
        queue_for: Callable[[RunStart], str],
    ) -> None:
        """`queue_for` is the queue of a new run; empty: it starts here."""
        super().__init__(supervisor, journal)
        self._placing = placing
        self._queue_for = queue_for
        self._is_draining = False

    async def submit(self, run: str, start: RunStart) -> bool:
        """Create and place a run."""
        queue = self._queue_for(start)
        return await (self._placing.begin_placed(run, start, queue) if queue else super().submit(run, start))

    def start_child(self, lease: L, start: RunStart) -> None:
        """Start a child, unless it was placed when it was created."""
        if not lease.queue:
            super().start_child(lease, start)

    async def begin_round(self, lease: L) -> None:
        """Place the run for its next round."""
        if lease.queue and not lease.state.is_cancelling:
            await self._placing.hand_over(lease)
        else:
            await super().begin_round(lease)

    async def place(self, run: str) -> bool | None:
        """Place a live run that no process works on; None when it has no queue."""
        return await self._placing.place(run)

    async def suspend(self, work: ActiveRun[L]) -> bool:
        """Park a run, or hand it over when this worker is draining."""
        lease = work.lease
        if not lease.queue:
            return await super().suspend(work)
        if work.is_handing_over:
            await self._placing.hand_over(lease)
            return True
        is_parked = await self._placing.park(lease, work.awaited)
        if is_parked:
            self._supervisor.parking.suspend_now(lease.run)
        elif self._is_draining:
            await self._placing.hand_over(lease)
        return is_parked or self._is_draining

    async def let_go(self, lease: L) -> None:
        """Release a lease; a live run goes back to its queue."""
        if lease.queue and lease.state.is_live:
            await self._placing.hand_over(lease)
        else:
            await super().let_go(lease)

    async def carry_out(self, run: str, number: int) -> None:
        """Work on a run for one of its placements, until it has ended or only waits."""
        supervisor = self._supervisor
        with supervisor.starting(run):
            lease = await self._placing.acquire_placed(run, number)
            if lease is None:
                return
            if self._is_draining or supervisor.is_leaving:
                await self._placing.hand_over(lease)
                return
            if (before := supervisor.work.get(run)) is not None:
                # This process was silent for too long and lost the run; now it gets it again.
                before.abandon()
                await before.over()
            await supervisor.continue_run(lease)
        if (work := supervisor.work.get(run)) is not None:
            if self._is_draining:
                # The drain began while the run was being read.
                work.hand_over()
            await work.is_settled.wait()

    async def drain(self, seconds: float) -> None:
        """Leave the runs of queues to other workers; the steps under way get some time to end."""
        self._is_draining = True
        leaving = [work for work in self._supervisor.work.values() if work.lease.queue]
        for work in leaving:
            if work.only_waits:
                self._supervisor.parking.suspend_at_once(work)
            else:
                work.hand_over()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for work in leaving:
                    await work.is_over.wait()
        for work in leaving:
            work.hand_over(at_once=True)
        for work in leaving:
            await work.over()
