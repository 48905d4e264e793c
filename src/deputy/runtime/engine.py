"""The engine in this process: runs are tasks, the journal is what they survive in."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic

from msgspec import json

from deputy.core.errors import StorageError, UnknownRun, UsageError
from deputy.core.state import answer_key
from deputy.engine.ports import L
from deputy.engine.recover import OrphanedRun, Overdue, find, overdue, unanswered
from deputy.runtime.finalize import keep_no_worktree
from deputy.runtime.supervisor import RunSupervisor, no_cleanup
from deputy.runtime.suspension import SUSPEND_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from types import TracebackType

    from deputy.core.approval import ApprovalRequest
    from deputy.core.events import Record
    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.engine.ports import Journal, RunStart, Workflow, Worktree, World

LOOK_SECONDS = 0.25
MONITOR_SECONDS = 5.0
"""How often this process looks after the runs of others."""
_KEY_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


class LocalEngine(Generic[L]):
    """Hosts runs as tasks of this process; `async with` bounds their life."""

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
    ) -> None:
        """`clean_up` ends what a run left in the world; `adopts` says what is gone on with that nobody asked for.

        `keep` gives the outcome of a run that was stopped what it had done in a place of its own.
        A run that has only waited for its children for `suspend_seconds` is put aside until one ends.
        `is_over` hears of the end of every run that was at work or put aside here.
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
        """Stop what is at work without ending it: whoever comes next goes on with it."""
        if self._watcher is not None:
            self._watcher.cancel()
        self._supervisor.close()
        await self._group.__aexit__(kind, error, trace)

    # --- one run ------------------------------------------------------------------------------------------------------

    async def submit(self, run: str, start: RunStart) -> bool:
        """Start a run; False when there is one of this id already, which is then left as it is."""
        with self._supervisor.starting(run):
            lease = await self._journal.begin(run, start)
            if lease is not None:
                self._supervisor.start(lease, start)
        return lease is not None

    async def resume(
        self,
        run: str,
        message: Any = None,
        *,
        seconds: float | None = None,
        request: ApprovalRequest | None = None,
        approval_timeout_seconds: float | None = None,
    ) -> int:
        """Start another round of a run that has ended; gives the round's number."""
        return await self._supervisor.rounds.begin(
            run, message, seconds=seconds, request=request, approval_timeout_seconds=approval_timeout_seconds
        )

    async def cancel(self, run: str, reason: str = "") -> None:
        """Stop a run and all runs below it, whoever is at work on them; one that is blocked ends as cancelled too."""
        top, *below = await self._tree(run)
        # First the top: if those below ended first, it might go on from their ends as if nothing had been asked.
        stopping = self._supervisor.stopping
        await stopping.stop_all([top], reason)
        stop = stopping.stop_below if top.is_live else stopping.stop_all
        await stop(below, reason or "a run above it was cancelled")
        if not top.is_live:
            # One that is live sees to those below it when it ends.
            await stopping.dismiss((top, *below))

    async def send(self, run: str, topic: str, body: Any, *, key: str = "") -> bool:
        """Send a run a message, once per key; False when another one was sent under that key before."""
        name = key or f"sent:{topic}:{self._world.random_string(_KEY_LETTERS, 12)}"
        is_first = await self._journal.send(run, topic, name, json.encode(body))
        await self._supervisor.deliver([(run, topic)], wake=True)
        return is_first

    async def get(self, run: str) -> State | None:
        """Where a run stands."""
        return await self._journal.state(run)

    async def result(self, run: str) -> Outcome:
        """Wait for a run's end."""
        return (await self._supervisor.endings.ended(run)).outcome

    async def outcome(self, run: str, number: int) -> Outcome:
        """How a round of a run ended."""
        return await self._supervisor.endings.outcome(run, number)

    async def new_id(self) -> str:
        """A session id that no run has."""
        return (await self._supervisor.new_ids(1))[0]

    async def ensure_running(self, run: str) -> bool:
        """Put a run to work that should be and is not; whether that was so."""
        return await self._supervisor.ensure_running(run)

    def has(self, run: str) -> bool:
        """Whether a run is at work here, or about to be."""
        return self._supervisor.owns(run) or self._supervisor.is_starting(run)

    async def deliver(self, run: str, to: str) -> None:
        """Say that a result has reached whoever asked; until then it is kept."""
        await self._journal.deliver(run, to)

    async def events(self, run: str, *, after: int = 0) -> AsyncIterator[Record]:
        """The records of a run after the how-manieth, and those to come, until it ends."""
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
        """Forget a run that has ended, and all runs below it."""
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
        """Carry out what is left behind or waits for somebody, until cancelled."""
        self._is_serving = True
        try:
            while True:
                # Storage that fails now may work again the next time.
                with suppress(StorageError):
                    await self.adopt()
                await asyncio.sleep(LOOK_SECONDS * 4)
        finally:
            self._is_serving = False

    async def adopt(self, wants: Callable[[State], bool] = lambda _: True) -> Sequence[str]:
        """Go on with every wanted run that nobody is at work on, each with the runs below it; tells which."""
        statuses = await self._journal.unfinished()
        found = find(statuses, self._world.now())
        left = {finding.state.run: finding.state for finding in found if isinstance(finding, OrphanedRun | Overdue)}
        # Those in trouble are ours as long as the journal does not take them back.
        troubled = set(self._supervisor.endings.troubled)
        left |= {status.state.run: status.state for status in statuses if status.state.run in troubled}
        # A run brings its children back itself: what they spend is counted in what it has opened before.
        tops = [run for run, state in left.items() if state.parent not in left and (run in troubled or wants(state))]
        return [run for run in (*tops, *(troubled - left.keys())) if await self._supervisor.ensure_running(run)]

    async def expire_others(self) -> Sequence[str]:
        """End what is past its deadline, whoever started it, and go on with what our runs wait for; tells what ended.

        What else a dead process left is for whoever resumes it, or serves: going on with it spends somebody's money.
        """
        statuses = await self._journal.unfinished()
        ended = await self._supervisor.stopping.end_late(overdue(statuses, self._world.now()))
        for state in unanswered(statuses, self._world.now()):
            await self._refuse(state)
        for status in statuses:
            state = status.state
            if not state.is_live:
                await self._supervisor.resume_suspended(state.parent)
            elif status.is_orphaned and state.status != "waiting" and self._supervisor.owns(state.parent):
                await self._supervisor.ensure_running(state.run)
        return ended

    async def _refuse(self, state: State) -> None:
        """Answer a run that nobody answered in time, and see to its end: it is refused, and costs nothing."""
        for key, topic in state.waits.items():
            await self._journal.send(state.run, topic, answer_key(key), json.encode(False))
        await self._supervisor.ensure_running(state.run)

    async def _watch(self) -> None:
        """The one task that looks for what other processes did."""
        seen, looked_at = -1, float("-inf")
        clock = asyncio.get_running_loop().time
        # A cancel that meets another trouble in the same moment can be lost; that this is left is not.
        while not self._supervisor.is_leaving:
            # Whoever waits for this storage hears of its trouble; here it is only looked at again.
            with suppress(StorageError):
                changes = await self._journal.changes()
                if changes != seen:
                    await self._supervisor.poll(wake=self._is_serving)
                    seen = changes
                await self._supervisor.stopping.stop_late()
                if clock() - looked_at >= MONITOR_SECONDS:
                    looked_at = clock()
                    await self.expire_others()
                    if self._adopts is not None:
                        await self.adopt(self._adopts)
            await asyncio.sleep(LOOK_SECONDS)
