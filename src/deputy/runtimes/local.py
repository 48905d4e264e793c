"""The engine in this process: runs are tasks, the journal is what they survive in."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from msgspec import UNSET, Raw, json

from deputy.core.errors import Error, LeaseHeld, LeaseLost, StorageError, UnknownRun, UsageError
from deputy.core.events import CANCEL, Opened, Refused, Requested, Resumed, Returned
from deputy.core.outcome import NO_USAGE, Cancelled, Failed, Rejected, shortened
from deputy.engine.ports import L
from deputy.engine.recover import LeftBehind, Overdue, find
from deputy.runtimes.context import LocalContext, draw_session_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from types import TracebackType

    from deputy.core.events import Event, Record
    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.engine.ports import Birth, Journal, Workflow, World

LOOK_SECONDS = 0.25
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
        self.is_ending = False
        """Its flow is over and how it ended is being written: nothing may come in between."""
        self.is_over = asyncio.Event()


class LocalEngine(Generic[L]):
    """Hosts runs as tasks of this process; `async with` bounds their life."""

    def __init__(self, journal: Journal[L], workflow: Workflow, world: World) -> None:
        self.world = world
        self._journal = journal
        self._workflow = workflow
        self._group = asyncio.TaskGroup()
        self._work: dict[str, _Work[L]] = {}
        self._awaited: dict[str, list[asyncio.Future[Ended | None]]] = {}
        self._adopting: set[str] = set()
        self._parked: set[str] = set()
        self._serving = False
        self._watcher: asyncio.Task[None] | None = None
        self._leaving = False

    async def __aenter__(self) -> LocalEngine[L]:
        await self._group.__aenter__()
        self._watcher = self._group.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop what is at work without ending it: whoever comes next goes on with it."""
        self._leaving = True
        if self._watcher is not None:
            self._watcher.cancel()
        for work in self._work.values():
            if work.task is not None:
                work.task.cancel()
        await self._group.__aexit__(kind, error, trace)

    # --- the host's side ----------------------------------------------------------------------------------------------

    async def submit(self, run: str, birth: Birth) -> bool:
        """Start a run; False when there is one of this id already, which is then left as it is."""
        lease = await self._journal.begin(run, birth)
        if lease is None:
            return False
        self.start(lease, birth, ())
        return True

    async def resume(self, run: str, message: Any = None, *, seconds: float | None = None) -> int:
        """Start another round of a run that has ended; gives the round's number."""
        lease = await self._journal.acquire(run)
        if lease.state.is_live:
            await self._journal.release(lease)
            raise UsageError("ID", run, f"this run is {lease.state.status}; only one that has ended is resumed")
        number = lease.state.round + 1
        raw = UNSET if message is None else Raw(json.encode(message))
        await self._journal.append(lease, f"resumed:{number}", Resumed(round=number, message=raw, seconds=seconds))
        await self._continue(lease)
        return number

    async def cancel(self, run: str, reason: str = "") -> None:
        """Stop a run and all runs below it, whoever is at work on them."""
        state = await self._journal.state(run)
        if state is None:
            raise UnknownRun(run)
        # First the top: if those below ended first, it might go on from their ends as if nothing had been asked.
        await self._stop_all([state], reason)
        await self._stop_all(await self._journal.descendants(run), reason)

    async def send(self, run: str, topic: str, body: Any, *, key: str = "") -> None:
        """Send a run a message, once per key."""
        name = key or f"{topic}:{self.world.draw('abcdefghijklmnopqrstuvwxyz0123456789', 12)}"
        await self._journal.send(run, topic, name, json.encode(body))
        await self._hear([(run, topic)], wake=True)

    async def get(self, run: str) -> State | None:
        """Where a run stands."""
        return await self._journal.state(run)

    async def list(self) -> Sequence[State]:
        """The runs that have not ended."""
        return [standing.state for standing in await self._journal.standings() if standing.state.is_live]

    async def result(self, run: str) -> Outcome:
        """Wait for a run's end."""
        return (await self.ended(run)).outcome

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
        state = await self._journal.state(run)
        if state is None:
            raise UnknownRun(run)
        for each in (state, *await self._journal.descendants(run)):
            if each.is_live:
                raise UsageError("ID", each.run, f"this run is {each.status}; cancel it first")
        await self._journal.purge(run)

    async def serve(self) -> None:
        """Carry out what is left behind or waits for somebody, until cancelled."""
        self._serving = True
        try:
            while True:
                await self.adopt()
                await asyncio.sleep(LOOK_SECONDS * 4)
        finally:
            self._serving = False

    async def adopt(self) -> list[str]:
        """Go on with every run that nobody is at work on, each with the runs below it; tells which."""
        found = find(await self._journal.standings(), self.world.now())
        left = {finding.state.run: finding.state for finding in found if isinstance(finding, LeftBehind | Overdue)}
        # A run brings its children back itself: what they spend is counted in what it has opened before.
        tops = [run for run, state in left.items() if state.parent not in left]
        return [run for run in tops if await self.ensure(run)]

    # --- the runs' side -----------------------------------------------------------------------------------------------

    def start(self, lease: L, birth: Birth, history: Sequence[Record]) -> None:
        """Put a run to work in this process."""
        work = _Work(LocalContext(self, self._journal, lease, history), lease)
        self._work[lease.run] = work
        work.task = self._group.create_task(self._carry_out(work, birth))

    async def ensure(self, run: str) -> bool:
        """Put a run to work that should be and is not; whether that was so."""
        if run in self._work or run in self._adopting:
            return False
        self._adopting.add(run)
        try:
            state = await self._journal.state(run)
            if state is None or not state.is_live:
                return False
            lease = await self._journal.acquire(run)
            if lease.state.is_live:
                # What its process was told before it died holds before anything else begins.
                await self._journal.take(lease, f"cancel-asked:{lease.state.round}", CANCEL)
                await self._continue(lease)
                return True
            await self._journal.release(lease)
        except LeaseHeld:
            return False
        finally:
            self._adopting.discard(run)
        return False

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
        while True:
            drawn = draw_session_id(self.world.now(), self.world.draw, lambda name: name in self._work)
            if await self._journal.state(drawn) is None:
                return drawn

    def park_soon(self, run: str) -> None:
        """Put a run aside if it still only waits for messages after a moment."""
        asyncio.get_running_loop().call_later(PARK_SECONDS, self._park, run)

    # --- how ----------------------------------------------------------------------------------------------------------

    async def _continue(self, lease: L) -> None:
        history = await self._journal.records(lease.run)
        birth = next((record.event for record in history if isinstance(record.event, Opened | Requested)), None)
        if birth is None:
            raise UnknownRun(lease.run)
        self.start(lease, birth, history)

    async def _carry_out(self, work: _Work[L], birth: Birth) -> None:
        run = work.lease.run
        trouble: StorageError | None = None
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
            # Nothing can be written about this run here; its records say where to go on from.
            trouble = error
        finally:
            work.is_over.set()
            if self._work.get(run) is work:
                del self._work[run]
            self._tell(run, trouble, ended)

    async def _outcome_of(self, work: _Work[L], birth: Birth) -> Outcome | None:
        """How the run ended; None when it was only put aside."""
        try:
            work.has_begun = True
            if work.is_cancelled or work.lease.state.is_cancelling:
                work.is_cancelled = True
                raise asyncio.CancelledError
            return await self._workflow(work.context, birth)
        except asyncio.CancelledError:
            if self._leaving or not (work.is_cancelled or work.is_parking):
                raise
            if not work.is_cancelled:
                return None
            return await self._ended_as(work, None)
        except (LeaseLost, StorageError):
            raise
        except Exception as bug:  # noqa: BLE001  whatever happens, an admitted run ends in an outcome
            return await self._ended_as(work, bug)

    async def _ended_as(self, work: _Work[L], bug: Exception | None) -> Outcome:
        """The outcome of a run whose flow did not give one, with all that it has found."""
        # The flow is over, so nothing begins any more; what it wrote last is durable when this is.
        await self._journal.take(work.lease, f"cancel-asked:{work.lease.state.round}", CANCEL)
        await self._stop_children(work.lease.run)
        so_far = work.context.so_far.fields(work.lease.state, self.world.now())
        if not work.lease.state.usage.requests:
            # A run that asks no model itself has used what its children have.
            below = await self._journal.descendants(work.lease.run)
            so_far["usage"] = reduce(add, (state.usage for state in below), NO_USAGE)
        if bug is None:
            return Cancelled(**so_far, summary="Cancelled; what was found until then is kept.")
        import traceback

        error = Error(
            type="execution",
            code="INTERNAL_ERROR",
            message=f"{type(bug).__name__}: {bug}",
            recoverable=False,
            recommendation="This is a mistake in Deputy or in one of its plugins: see `deputy errors` for the trace.",
        )
        await self._journal.log(work.lease.run, error, "".join(traceback.format_exception(bug)))
        return Failed(**so_far, summary=shortened(f"It stopped by a mistake of ours: {error.message}"), errors=(error,))

    async def _stop_children(self, run: str) -> None:
        children = await self._journal.descendants(run)
        await self._stop_all(children, "its caller was cancelled")
        for child in children:
            if child.run in self._work:
                await self._work[child.run].is_over.wait()

    async def _stop_all(self, states: Sequence[State], reason: str) -> None:
        """Ask all of them at once, so that they are asked in one commit and stop together."""
        async with asyncio.TaskGroup() as asking:
            for state in states:
                if state.is_live:
                    asking.create_task(self._ask_to_stop(state, reason))

    async def _ask_to_stop(self, state: State, reason: str) -> None:
        await self._journal.send(state.run, CANCEL, f"{CANCEL}:{state.round}", json.encode(reason))
        await self._hear([(state.run, CANCEL)])

    def _park(self, run: str) -> None:
        work = self._work.get(run)
        if work is None or work.task is None or work.is_parking or work.context.busy or not work.context.waiting:
            return
        if any(come.done() for come in work.context.waiting):
            return
        work.is_parking = True
        work.task.cancel()

    async def _watch(self) -> None:
        """The one task that looks for what other processes did: messages, cancellations, ends."""
        seen = -1
        while True:
            # Whoever waits for this storage hears of its trouble; here it is only looked at again.
            with suppress(StorageError):
                changes = await self._journal.changes()
                if changes != seen:
                    await self._look()
                    seen = changes
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        await self._hear(await self._journal.addressed())
        for run in tuple(self._awaited):
            state = await self._journal.state(run)
            if state is not None and not state.is_live:
                self._tell(run)

    async def _hear(self, addressed: Iterable[tuple[str, str]], *, wake: bool = False) -> None:
        for run, topic in addressed:
            work = self._work.get(run)
            if work is not None and work.is_parking:
                await work.is_over.wait()
                work = self._work.get(run)
            if work is None:
                await self._wake(run, topic, asked=wake)
            elif topic == CANCEL:
                self._stop(work)
            else:
                work.context.notice()

    def _stop(self, work: _Work[L]) -> None:
        if work.is_cancelled or work.is_ending or work.task is None:
            return
        work.is_cancelled = True
        # A task that is cancelled before its first step never takes it, and its run would never end.
        if work.has_begun:
            work.task.cancel()

    async def _wake(self, run: str, topic: str, *, asked: bool) -> None:
        """A message came for a run that nobody is at work on: put it to work again if that is ours to do."""
        state = await self._journal.state(run)
        if state is None or not state.is_live:
            return
        is_awaited = topic in state.waits.values()
        is_ours = asked or self._serving or run in self._parked
        if (topic == CANCEL or (is_awaited and is_ours)) and await self.ensure(run):
            self._parked.discard(run)
            if topic == CANCEL:
                self._stop(self._work[run])

    def _tell(self, run: str, trouble: StorageError | None = None, ended: Ended | None = None) -> None:
        for over in self._awaited.get(run, ()):
            if over.done():
                continue
            if trouble is None:
                over.set_result(ended)
            else:
                over.set_exception(trouble)


def _ended(state: State, record: Record) -> Ended | None:
    """How a run ended, as it was written: what was there before stands."""
    event = record.event
    return Ended(state, event.outcome) if isinstance(event, Returned | Refused) else None


def _ending_key(number: int) -> str:
    return f"returned:{number}"
