"""Stop runs: on request, with their ancestors, or at their deadline."""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Generic

from msgspec import json

from deputy.core.errors import UnknownRun
from deputy.core.events import CANCEL
from deputy.engine.ports import L
from deputy.engine.recover import RunStatus, has_time_below, overdue, seconds_late
from deputy.runtime.finalize import storage_trouble

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

    from deputy.core.state import State
    from deputy.engine.ports import Journal
    from deputy.runtime.active_run import ActiveRun
    from deputy.runtime.supervisor import RunSupervisor

GRACE_SECONDS = 0.5
"""The time that a run of this process gets to end by itself at its deadline."""
_CALLER_STOPPED = "its caller was cancelled"
_MOST_ENDED = 1024
"""How many deadlines of ended runs are kept at least."""


class Canceller(Generic[L]):
    """Stops runs: directly in this process, by messages in others."""

    def __init__(self, supervisor: RunSupervisor[L], journal: Journal[L]) -> None:
        self._supervisor = supervisor
        self._journal = journal
        self._deadlines: list[tuple[float, str]] = []
        """A heap of the deadlines of active runs, and of some that have ended."""

    async def stop_tree(self, run: str, reason: str) -> None:
        """Cancel a run and its descendants."""
        state = await self._journal.state(run)
        if state is None:
            raise UnknownRun(run)
        # The top first: if its children ended first, it might continue with their results.
        await self.stop_all([state], reason)
        below = await self._journal.descendants(run)
        stop = self.stop_below if state.is_live else self.stop_all
        await stop(below, reason or "a run above it was cancelled")
        if not state.is_live:
            # A live run dismisses its descendants when it ends.
            await self.dismiss((state, *below))

    async def stop_all(self, states: Sequence[State], reason: str) -> None:
        """Send cancel messages to these runs, in one commit."""
        await _together(
            [
                self._ask_to_stop(state, reason)
                for state in states
                if state.is_live
                and not ((work := self._supervisor.work.get(state.run)) is not None and work.is_cancelled)
            ]
        )

    async def stop_below(self, states: Sequence[State], reason: str) -> None:
        """Stop the descendants of a stopping run; those of this process without a message."""
        elsewhere: list[State] = []
        for state in states:
            work = self._supervisor.work.get(state.run)
            if work is None or work.is_parking:
                elsewhere.append(state)
            elif not (work.is_cancelled or work.is_late):
                work.stopped_because = reason
                work.cancel()
        await self.stop_all(elsewhere, reason)

    async def dismiss(self, states: Iterable[State]) -> None:
        """End blocked runs as cancelled, since their questions will not be answered."""
        await _together([self._supervisor.rounds.dismiss(state.run) for state in states if state.status == "blocked"])

    async def _ask_to_stop(self, state: State, reason: str) -> None:
        await self._journal.send(state.run, CANCEL, f"{CANCEL}:{state.round}", json.encode(reason))
        await self._supervisor.deliver([(state.run, CANCEL)])

    async def stop_children(self, run: str, *, is_late: bool) -> None:
        """Stop all descendants of a stopping run, and wait for those of this process."""
        children = await self._journal.descendants(run)
        if is_late:
            await self.end_late(children)
        else:
            await self.stop_below(children, _CALLER_STOPPED)
        for child in children:
            if child.run in self._supervisor.work:
                await self._supervisor.work[child.run].over()
        if not is_late:
            children = await self._journal.descendants(run)
            # A run whose storage failed before it recorded the stop would continue when storage recovers.
            await self.stop_all(
                [child for child in children if child.run not in self._supervisor.work], _CALLER_STOPPED
            )
            await self.dismiss(children)

    # --- time is up ---------------------------------------------------------------------------------------------------

    def watch_deadline(self, work: ActiveRun[L]) -> None:
        """Let `stop_late` look at a run from its deadline on; while it is active, its deadline only moves to later."""
        deadline = _deadline(work)
        if deadline is not None:
            heappush(self._deadlines, (deadline, work.lease.run))
        if len(self._deadlines) > _MOST_ENDED + 2 * len(self._supervisor.work):
            # Most of them are of runs that have ended.
            active = self._supervisor.work.items()
            self._deadlines = [(end, run) for run, one in active if (end := _deadline(one)) is not None]
            heapify(self._deadlines)

    async def stop_late(self) -> None:
        """Stop runs of this process that did not end by themselves at their deadline."""
        now = self._supervisor.world.now() - GRACE_SECONDS
        passed: list[str] = []
        while self._deadlines and self._deadlines[0][0] < now:
            passed.append(heappop(self._deadlines)[1])
        late: list[ActiveRun[L]] = []
        for run in passed:
            work = self._supervisor.work.get(run)
            if work is None or work.is_late:
                continue
            # Until it has ended it is looked at again: next time, or at its later deadline.
            heappush(self._deadlines, (max(_deadline(work) or now, now), run))
            if seconds_late(work.lease.state, now):
                late.append(work)
        for work in late:
            if await self.is_late(work.lease.state, now):
                work.end_late()

    async def end_overdue(self, statuses: Sequence[RunStatus]) -> list[str]:
        """End the overdue ones of these runs, which are not active here; returns those that were ended."""
        now = self._supervisor.world.now()
        if not any(seconds_late(status.state, now) for status in statuses):
            return []
        # A run is excused by a descendant that is active here and has time.
        active = [RunStatus(state=work.lease.state, is_orphaned=False) for work in self._supervisor.work.values()]
        late = [state for state in overdue((*statuses, *active), now) if state.run not in self._supervisor.work]
        # Those that wait for a person excuse their callers too, and are not among the statuses.
        return await self.end_late([state for state in late if await self.is_late(state, now)])

    async def end_late(self, states: Iterable[State]) -> list[str]:
        """End overdue runs of any process; returns those that were not active here."""
        ended: list[str] = []
        for state in states:
            work = self._supervisor.work.get(state.run)
            if work is not None:
                work.end_late()
            elif state.is_live and not self._supervisor.is_starting(state.run) and await self._journal.expire(state):
                await self._supervisor.finalize_absent(state)
                ended.append(state.run)
        return ended

    async def is_late(self, state: State, now: float) -> bool:
        """Whether a run is past its deadline and no descendant has time left."""
        return bool(seconds_late(state, now)) and not has_time_below(await self._journal.descendants(state.run), now)


def _deadline(work: ActiveRun[Any]) -> float | None:
    lineage = work.lease.state.lineage
    return None if lineage is None else lineage.deadline


async def _together(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all concurrently; of several storage errors only the most important one is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except ExceptionGroup as raised:
        trouble = storage_trouble(raised)
        if trouble is None:
            raise
        raise trouble from raised
