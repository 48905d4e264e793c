"""LocalEngine: runs as tasks of this process, durable in a journal."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic

from msgspec import json

from deputy.core.errors import StorageError, UnknownRun, UsageError
from deputy.core.events import NO_CHANGES
from deputy.core.state import answer_key
from deputy.engine.ports import L
from deputy.engine.recover import OrphanedRun, Overdue, find, unanswered
from deputy.runtime.finalize import keep_no_worktree
from deputy.runtime.observation import Observation
from deputy.runtime.supervisor import RunSupervisor, no_cleanup
from deputy.runtime.suspension import SUSPEND_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from types import TracebackType

    from deputy.core.approval import ApprovalRequest
    from deputy.core.events import Record, ResumeChanges
    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.engine.ports import Journal, Observer, PlacingJournal, RunStart, Workflow, Worktree, World
    from deputy.runtime.active_run import HostedRuns

LOOK_SECONDS = 0.25
MONITOR_SECONDS = 5.0
"""The interval of checks for runs of other processes."""
_MONITOR_PAUSES, _MONITOR_MOST_SECONDS = 50, 30.0
"""How many times longer than such a check the pause after it is at least, and the longest such pause."""
_KEY_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


class SystemWorld:
    """The journal's clock, the wall clock and the system's randomness."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def random_string(self, letters: str, count: int) -> str:
        """A random string of `count` of these letters."""
        # One large random number for all letters saves system calls and keeps the bias negligible.
        base, number = len(letters), int.from_bytes(os.urandom(count + 8))
        drawn: list[str] = []
        for _ in range(count):
            number, at = divmod(number, base)
            drawn.append(letters[at])
        return "".join(drawn)


class LocalEngine(Generic[L]):
    """Hosts runs as tasks of this process while its `async with` block is open."""

    def __init__(
        self,
        journal: Journal[L],
        workflow: Workflow,
        world: World,
        *,
        clean_up: Callable[[str], Awaitable[None]] = no_cleanup,
        keep: Callable[[Worktree, str, Outcome], Awaitable[Outcome]] = keep_no_worktree,
        adopts: Callable[[State], bool] | None = None,
        suspend_seconds: float = SUSPEND_SECONDS,
        is_over: Callable[[State], None] = lambda _: None,
        observers: Sequence[Observer] = (),
        placing: PlacingJournal[L] | None = None,
        queue_for: Callable[[RunStart], str] = lambda _: "",
    ) -> None:
        """`clean_up` stops a run's orphaned processes; `adopts` selects orphaned runs to resume without a request.

        `keep` adds the changes in a worktree to the outcome of a stopped run.
        A run that has only waited for its children for `suspend_seconds` is suspended until one ends.
        `is_over` is called with the end of every run that was active or suspended here.
        `placing` is the journal, if workers may carry out its runs; `queue_for` is the queue of a new run, or empty.
        """
        self._journal = journal
        self._world = world
        self._group = asyncio.TaskGroup()
        self._supervisor = RunSupervisor(
            journal,
            workflow,
            world,
            self._group,
            clean_up,
            keep=keep,
            suspend_seconds=suspend_seconds,
            is_over=is_over,
            observation=Observation(*observers) if observers else None,
            placing=placing,
            queue_for=queue_for,
        )
        self._watcher: asyncio.Task[None] | None = None
        self._is_serving = False
        self._adopts = adopts

    async def __aenter__(self) -> LocalEngine[L]:
        await self._group.__aenter__()
        self._watcher = self._group.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all tasks without ending their runs, which another process can resume."""
        if self._watcher is not None:
            self._watcher.cancel()
        self._supervisor.close()
        await self._group.__aexit__(kind, error, trace)

    # --- one run ------------------------------------------------------------------------------------------------------

    async def submit(self, run: str, start: RunStart) -> bool:
        """Start a run; False if a run with this id exists already."""
        return await self._supervisor.starts.submit(run, start)

    async def carry_out(self, run: str, number: int) -> None:
        """Work on a run that the engine of a queue handed to this worker, until it has ended or only waits."""
        await self._supervisor.starts.carry_out(run, number)

    def hosted(self) -> HostedRuns:
        """What this engine holds now, and what it has lost and repeated so far."""
        return self._supervisor.hosted()

    async def drain(self, seconds: float) -> None:
        """Hand the runs of queues over to other workers; the steps under way get some time to end."""
        await self._supervisor.starts.drain(seconds)

    async def resume(
        self,
        run: str,
        message: Any = None,
        *,
        seconds: float | None = None,
        request: ApprovalRequest | None = None,
        approval_timeout_seconds: float | None = None,
        changes: ResumeChanges = NO_CHANGES,
    ) -> int:
        """Start another round of an ended run; returns its number."""
        return await self._supervisor.rounds.begin(
            run,
            message,
            seconds=seconds,
            request=request,
            approval_timeout_seconds=approval_timeout_seconds,
            changes=changes,
        )

    async def cancel(self, run: str, reason: str = "") -> None:
        """Cancel a run and its descendants in every process; a blocked run ends as cancelled too."""
        await self._supervisor.stopping.stop_tree(run, reason)

    async def send(self, run: str, topic: str, body: Any, *, key: str = "") -> bool:
        """Send a message to a run; False if another message was sent under this key before."""
        name = key or f"sent:{topic}:{self._world.random_string(_KEY_LETTERS, 12)}"
        is_first = await self._journal.send(run, topic, name, json.encode(body))
        await self._supervisor.deliver([(run, topic)], wake=True)
        return is_first

    async def get(self, run: str) -> State | None:
        """The state of a run."""
        return await self._journal.state(run)

    async def result(self, run: str) -> Outcome:
        """Wait for a run to end."""
        return (await self._supervisor.endings.ended(run)).outcome

    async def outcome(self, run: str, number: int) -> Outcome:
        """The outcome of a round."""
        return await self._supervisor.endings.outcome(run, number)

    async def new_id(self) -> str:
        """A new session id."""
        return (await self._supervisor.new_ids(1))[0]

    async def ensure_running(self, run: str) -> bool:
        """Resume a live run that is not active; whether it was resumed."""
        return await self._supervisor.ensure_running(run)

    def active_roots(self) -> set[str]:
        """The trees that this process works on."""
        leases = [work.lease for work in self._supervisor.work.values()]
        return {lease.run if lease.state.lineage is None else lease.state.lineage.root_id for lease in leases}

    def has(self, run: str) -> bool:
        """Whether a run is active here or about to be."""
        return self._supervisor.owns(run) or self._supervisor.is_starting(run)

    async def deliver(self, run: str, to: str) -> None:
        """Record that the result reached the caller; until then it is kept."""
        await self._journal.deliver(run, to)

    async def events(self, run: str, *, after: int = 0) -> AsyncIterator[Record]:
        """The records of a run after this sequence number, as they are written, until the run ends."""
        while True:
            state = await self._journal.state(run)
            if state is None:
                raise UnknownRun(run)
            for record in await self._journal.records(run, after):
                after = record.seq
                yield record
            if not state.is_live and after >= state.seq:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def purge(self, run: str) -> None:
        """Delete an ended run and its descendants."""
        for state in await self._tree(run):
            if state.is_live:
                raise UsageError("ID", state.run, f"this run is {state.status}; cancel it first")
        await self._journal.purge(run)

    async def _tree(self, run: str) -> Sequence[State]:
        state = await self._journal.state(run)
        if state is None:
            raise UnknownRun(run)
        return (state, *await self._journal.descendants(run))

    # --- all runs -----------------------------------------------------------------------------------------------------

    async def list(self) -> Sequence[State]:
        """The runs that have not ended."""
        return [status.state for status in await self._journal.unfinished() if status.state.is_live]

    async def serve(self) -> None:
        """Resume orphaned runs and runs that received messages, until cancelled."""
        self._is_serving = True
        try:
            while True:
                # Storage may recover until the next check.
                with suppress(StorageError):
                    await self.adopt()
                await asyncio.sleep(LOOK_SECONDS * 4)
        finally:
            self._is_serving = False

    async def adopt(self, wants: Callable[[State], bool] = lambda _: True) -> Sequence[str]:
        """Resume every wanted orphaned run, with its descendants; returns the resumed ids."""
        statuses = await self._journal.unfinished(frozenset(self._supervisor.work))
        found = find(statuses, self._world.now())
        left = {finding.state.run: finding.state for finding in found if isinstance(finding, OrphanedRun | Overdue)}
        # Runs with a storage error are ours until the journal accepts them again.
        troubled = set(self._supervisor.endings.troubled)
        left |= {status.state.run: status.state for status in statuses if status.state.run in troubled}
        # A run resumes its children itself, so that their spending counts in its ledger.
        tops = [run for run, state in left.items() if state.parent not in left and (run in troubled or wants(state))]
        return [run for run in (*tops, *(troubled - left.keys())) if await self._supervisor.ensure_running(run)]

    async def resume_troubled(self) -> Sequence[str]:
        """Resume the runs of this process that an error of the store stopped; returns the resumed ids."""
        return await self.adopt(lambda _: False) if self._supervisor.endings.troubled else ()

    async def expire_others(self) -> Sequence[str]:
        """End overdue runs of any process, and resume what our runs wait for; returns the ended ids.

        Other orphaned runs wait for an explicit resume or `serve`: continuing them costs money.
        """
        now = self._world.now()
        # Active runs are stopped by `stop_late`.
        statuses = await self._journal.due(frozenset(self._supervisor.work), self._supervisor.parking.waiting, now)
        ended = await self._supervisor.stopping.end_overdue(statuses)
        for state in unanswered(statuses, now):
            await self._refuse(state)
        for status in statuses:
            state = status.state
            if not state.is_live:
                await self._supervisor.end_elsewhere(state)
            elif status.is_orphaned and state.status != "waiting" and self._supervisor.owns(state.parent):
                await self._supervisor.ensure_running(state.run)
        return ended

    async def _refuse(self, state: State) -> None:
        """Deny a run that got no answer in time, and resume it so that it ends."""
        for key, topic in state.waits.items():
            await self._journal.send(state.run, topic, answer_key(key), json.encode(False))
        await self._supervisor.ensure_running(state.run)

    async def _watch(self) -> None:
        seen, look_at = -1, float("-inf")
        clock = asyncio.get_running_loop().time
        # A cancellation can be lost when another error occurs at the same moment; `is_leaving` cannot.
        while not self._supervisor.is_leaving:
            # Waiters get the storage error; here it is only retried.
            with suppress(StorageError):
                changes = await self._journal.changes()
                if changes != seen:
                    await self._supervisor.poll(wake=self._is_serving)
                    seen = changes
                await self._supervisor.stopping.stop_late()
                if (began := clock()) >= look_at:
                    look_at = began + MONITOR_SECONDS
                    await self.expire_others()
                    if self._adopts is not None:
                        await self.adopt(self._adopts)
                    # With very many runs it looks less often: it must stay a small part of the work.
                    look_at = max(look_at, clock() + min(_MONITOR_MOST_SECONDS, _MONITOR_PAUSES * (clock() - began)))
            await asyncio.sleep(LOOK_SECONDS)
