"""The runs at work in this process: started, put aside, woken, stopped, and always brought to an outcome."""

from __future__ import annotations

import asyncio
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from msgspec import json

from deputy.core.errors import Error, LeaseHeld, LeaseLost, StorageCorrupt, StorageError, UnknownRun
from deputy.core.events import CANCEL, CancelAsked, Opened, Refused, Requested, Returned
from deputy.core.outcome import NO_USAGE, Cancelled, Failed, Rejected, shortened
from deputy.core.request import ID_LENGTH, ID_LETTERS, new_session_id
from deputy.engine.ports import L
from deputy.runtimes.context import LocalContext
from deputy.runtimes.endings import storage_trouble

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deputy.core.events import Event, Record
    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.engine.ports import Birth, Journal, Workflow, World

PARK_SECONDS = 0.05


class Ended(NamedTuple):
    """A run that has ended: where it stands, and how it ended."""

    state: State
    outcome: Outcome


class _Work(Generic[L]):
    """A run at work: its task, its context, and why the task is being stopped."""

    def __init__(self, context: LocalContext[L], lease: L) -> None:
        self.context = context
        self.lease = lease
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self.is_parking = False
        self.is_cancelled = False
        self.stopped_because = ""
        """Why a run above it has stopped it, when that run's own end says so and nothing was sent."""
        self.is_ending = False
        self.is_over = asyncio.Event()

    @property
    def only_waits(self) -> bool:
        """Whether nothing goes on but waiting for messages, none of which has come."""
        waiting = self.context.waiting
        return bool(waiting) and not self.context.busy and not any(come.done() for come in waiting)


class Crew(Generic[L]):
    """Carries runs out as tasks of a group that belongs to the engine."""

    def __init__(self, journal: Journal[L], workflow: Workflow, world: World, group: asyncio.TaskGroup) -> None:
        self.world = world
        self._journal = journal
        self._workflow = workflow
        self._group = group
        self._work: dict[str, _Work[L]] = {}
        self._starting: set[str] = set()
        self._unwanted: set[str] = set()
        """Runs that were cancelled while they were being started."""
        self._parked: set[str] = set()
        self._troubles: dict[str, StorageError] = {}
        self._awaited: dict[str, list[asyncio.Future[Ended | None]]] = {}
        self._leaving = False

    # --- going to work ------------------------------------------------------------------------------------------------

    def start(self, lease: L, birth: Birth, history: Sequence[Record] = ()) -> None:
        """Put a run to work."""
        work = _Work(LocalContext(self, self._journal, lease, history), lease)
        self._work[lease.run] = work
        work.is_cancelled = lease.run in self._unwanted
        self._troubles.pop(lease.run, None)
        self._parked.discard(lease.run)
        work.task = self._group.create_task(self._carry_out(work, birth))

    async def go_on(self, lease: L) -> None:
        """Put a run to work from where its records leave it."""
        history = await self._journal.records(lease.run)
        birth = next((record.event for record in history if isinstance(record.event, Opened | Requested)), None)
        if birth is None:
            raise UnknownRun(lease.run)
        self.start(lease, birth, history)

    async def ensure(self, run: str) -> bool:
        """Put a run to work that should be and is not; whether that was so."""
        if run in self._work or run in self._starting:
            return False
        self._starting.add(run)
        try:
            return await self._adopt(run)
        except LeaseHeld:
            return False
        except StorageCorrupt as error:
            # One damaged run must not keep anybody from all others.
            self._troubles[run] = error
            self._tell(run)
            return False
        finally:
            self._starting.discard(run)
            self._unwanted.discard(run)

    async def _adopt(self, run: str) -> bool:
        state = await self._journal.state(run)
        if state is None or not state.is_live:
            return False
        lease = await self._journal.acquire(run)
        try:
            # Somebody may have wanted it stopped while nobody was there to do it.
            await self._journal.take(lease, _cancel_key(lease.state), CANCEL)
            if lease.state.is_live:
                await self.go_on(lease)
                return True
        finally:
            if run not in self._work:
                await self._journal.release(lease)
        return False

    @property
    def troubled(self) -> list[str]:
        """Runs that stopped because the journal failed, and may go on when it works again."""
        return [run for run, trouble in self._troubles.items() if not isinstance(trouble, StorageCorrupt)]

    # --- what others want to know -------------------------------------------------------------------------------------

    async def ended(self, run: str) -> Ended:
        """Wait until a run has ended, wherever it is at work."""
        while True:
            over: asyncio.Future[Ended | None] = asyncio.get_running_loop().create_future()
            self._awaited.setdefault(run, []).append(over)
            try:
                if run not in self._work:
                    state = await self._journal.state(run)
                    if state is None:
                        raise UnknownRun(run)
                    if not state.is_live:
                        return Ended(state, await self.outcome(run, state.round))
                    if run in self._troubles:
                        raise self._troubles[run]
                ended = await over
                if ended is not None:
                    return ended
            finally:
                waiting = self._awaited[run]
                waiting.remove(over)
                if not waiting:
                    del self._awaited[run]

    async def outcome(self, run: str, number: int) -> Outcome:
        """How a round of a run ended."""
        record = await self._journal.get(run, _ending_key(number))
        if record is None or not isinstance(record.event, Returned | Refused):
            raise UnknownRun(run)
        return record.event.outcome

    async def draw_id(self) -> str:
        """A session id that no run has."""
        tried: set[str] = set()
        while True:
            drawn = new_session_id(
                int(self.world.now()), lambda: self.world.draw(ID_LETTERS, ID_LENGTH), tried.__contains__
            )
            if await self._journal.state(drawn) is None:
                return drawn
            tried.add(drawn)

    async def look(self, *, wake: bool) -> None:
        """See what other processes did: messages they sent, runs they ended."""
        await self.hear(await self._journal.addressed(), wake=wake)
        for run in [run for run in self._awaited if run not in self._work]:
            state = await self._journal.state(run)
            if state is not None and not state.is_live:
                self._tell(run)

    # --- messages -----------------------------------------------------------------------------------------------------

    async def hear(self, addressed: Iterable[tuple[str, str]], *, wake: bool = False) -> None:
        """Pass on that messages have come; runs that are put aside are woken if they are ours, or if told so."""
        for run, topic in addressed:
            work = self._work.get(run)
            if work is not None and work.is_parking:
                await work.is_over.wait()
                work = self._work.get(run)
            if work is None and topic == CANCEL and run in self._starting:
                self._unwanted.add(run)
            elif work is None:
                await self._wake(run, topic, is_ours=wake or run in self._parked)
            elif topic == CANCEL:
                self._stop(work)
            else:
                work.context.notice()

    async def _wake(self, run: str, topic: str, *, is_ours: bool) -> None:
        state = await self._journal.state(run)
        if state is not None and (topic == CANCEL or (is_ours and topic in state.waits.values())):
            await self.ensure(run)

    def park_soon(self, run: str) -> None:
        """Put a run aside if it still only waits for messages after a moment."""
        asyncio.get_running_loop().call_later(PARK_SECONDS, self._park, run)

    def _park(self, run: str) -> None:
        work = self._work.get(run)
        if work is not None and work.task is not None and work.only_waits and not work.is_parking:
            work.is_parking = True
            work.task.cancel()

    # --- stopping -----------------------------------------------------------------------------------------------------

    async def stop_all(self, states: Sequence[State], reason: str) -> None:
        """Want all these runs stopped, asked together so that they are asked in one commit."""
        async with asyncio.TaskGroup() as asking:
            for state in states:
                work = self._work.get(state.run)
                if state.is_live and not (work is not None and work.is_cancelled):
                    asking.create_task(self._ask_to_stop(state, reason))

    async def stop_below(self, states: Sequence[State], reason: str) -> None:
        """Stop runs below one that is known to stop: those at work here need no message that could be lost."""
        elsewhere: list[State] = []
        for state in states:
            work = self._work.get(state.run)
            if work is None or work.is_parking:
                elsewhere.append(state)
            elif not work.is_cancelled:
                work.stopped_because = reason
                self._stop(work)
        await self.stop_all(elsewhere, reason)

    async def _ask_to_stop(self, state: State, reason: str) -> None:
        await self._journal.send(state.run, CANCEL, f"{CANCEL}:{state.round}", json.encode(reason))
        await self.hear([(state.run, CANCEL)])

    def _stop(self, work: _Work[L]) -> None:
        if work.is_cancelled or work.is_ending or work.task is None:
            return
        work.is_cancelled = True
        # A task that is cancelled before its first step never takes it, and its run would never end.
        if work.has_begun:
            work.task.cancel()

    async def _stop_children(self, run: str) -> None:
        children = await self._journal.descendants(run)
        await self.stop_below(children, "its caller was cancelled")
        for child in children:
            if child.run in self._work:
                await self._work[child.run].is_over.wait()

    def leave(self) -> None:
        """Stop all work without ending it: whoever comes next goes on with it."""
        self._leaving = True
        for work in self._work.values():
            if work.task is not None:
                work.task.cancel()

    # --- from the flow to the outcome ---------------------------------------------------------------------------------

    async def _carry_out(self, work: _Work[L], birth: Birth) -> None:
        run = work.lease.run
        ended: Ended | None = None
        try:
            ending = await self._outcome_of(work, birth)
            work.is_ending = True
            if ending is None:
                self._parked.add(run)
                await self._journal.release(work.lease)
            else:
                key = _ending_key(work.lease.state.round)
                event: Event = Refused(outcome=ending) if isinstance(ending, Rejected) else Returned(outcome=ending)
                record = await self._journal.finish(work.lease, key, event)
                ended = _ended(work.lease.state, record)
        except LeaseLost:
            # Another process has it now, and will end it.
            return
        except StorageError as error:
            # Nothing can be written about this run now; its records say where to go on from.
            self._troubles[run] = error
        finally:
            work.is_over.set()
            if self._work.get(run) is work:
                del self._work[run]
            self._tell(run, ended)

    async def _outcome_of(self, work: _Work[L], birth: Birth) -> Outcome | None:
        """How the run ended; None when it was only put aside."""
        work.has_begun = True
        try:
            if not (work.is_cancelled or work.lease.state.is_cancelling):
                outcome = await self._workflow(work.context, birth)
                await work.context.durable()
                return outcome
        except asyncio.CancelledError:
            if self._leaving or not (work.is_cancelled or work.is_parking):
                raise
            if not work.is_cancelled:
                return None
        except Exception as bug:
            trouble = storage_trouble(bug)
            if trouble is not None:
                raise trouble from bug
            return await self._failed(work, bug)
        # Whoever cancels it again must not interrupt its ending.
        work.is_cancelled = True
        return Cancelled(**await self._found(work), summary="Cancelled; what was found until then is kept.")

    async def _found(self, work: _Work[L]) -> dict[str, Any]:
        """What a run has found whose flow stopped, when nothing of it goes on any more."""
        # The flow begins nothing after this, and what it began last, a child perhaps, is durable when this is.
        key = _cancel_key(work.lease.state)
        if work.stopped_because:
            await self._journal.append(work.lease, key, CancelAsked(reason=work.stopped_because))
        else:
            await self._journal.take(work.lease, key, CANCEL)
        state = work.lease.state
        if state.counts.children:
            await self._stop_children(state.run)
        found = work.context.so_far.fields(state, self.world.now())
        if state.counts.children and not state.usage.requests:
            # A run that asks no model itself has used what its children have.
            below = await self._journal.descendants(state.run)
            found["usage"] = reduce(add, (child.usage for child in below), NO_USAGE)
        return found

    async def _failed(self, work: _Work[L], bug: Exception) -> Failed:
        """The outcome of a run whose flow is mistaken: whatever happens, there is one."""
        import traceback

        work.is_cancelled = True
        error = Error(
            type="execution",
            code="INTERNAL_ERROR",
            message=f"{type(bug).__name__}: {bug}",
            recoverable=False,
            recommendation="This is a mistake in Deputy or in one of its plugins: see `deputy errors` for the trace.",
        )
        await self._journal.log(work.lease.run, error, "".join(traceback.format_exception(bug)))
        found = await self._found(work)
        return Failed(**found, summary=shortened(f"It stopped by a mistake of ours: {error.message}"), errors=(error,))

    def _tell(self, run: str, ended: Ended | None = None) -> None:
        """Give those who wait for a run its end, or let them look again."""
        for over in self._awaited.get(run, ()):
            if not over.done():
                over.set_result(ended)


def _ended(state: State, record: Record) -> Ended | None:
    """How a run ended, as it was written: what was there before stands."""
    event = record.event
    return Ended(state, event.outcome) if isinstance(event, Returned | Refused) else None


def _ending_key(number: int) -> str:
    return f"returned:{number}"


def _cancel_key(state: State) -> str:
    return f"cancel-asked:{state.round}"
