"""The runs at work in this process: started, put aside, woken, stopped, and always brought to an outcome."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from msgspec import UNSET, Raw, json

from deputy.core.errors import Error, LeaseHeld, LeaseLost, StorageCorrupt, StorageError, UnknownRun, UsageError
from deputy.core.events import CANCEL, CancelAsked, Opened, Refused, Requested, Resumed, Returned
from deputy.core.limits import inherited_deadline
from deputy.core.outcome import Cancelled, Failed, Partial, Rejected, shortened
from deputy.core.request import ID_LENGTH, ID_LETTERS, new_session_id
from deputy.core.results import Result
from deputy.engine.ports import L
from deputy.engine.recover import has_time_below, seconds_late
from deputy.engine.remains import SoFar, stopped_late, with_all_below
from deputy.runtimes.context import LocalContext
from deputy.runtimes.troubles import failed_by, storage_trouble

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence

    from deputy.core.events import Event, Record
    from deputy.core.outcome import Outcome
    from deputy.core.state import Counts, State
    from deputy.engine.ports import Birth, Journal, Workflow, Workplace, World

PARK_SECONDS = 0.05
SUSPEND_SECONDS = 5.0
"""How long a run only waits for its children before it is put aside: to take it up again costs its history."""
SUSPEND_SOON_SECONDS = 0.25
"""The same when many wait."""
MANY_WAITING = 256
_RECORD_SECONDS = 0.002
"""How much longer a run waits for every record of its history."""
_AGAIN_SECONDS = (0.05, 0.5)
"""How long a run whose storage failed is left before each time that it goes on by itself."""
GRACE_SECONDS = 0.5
"""What a run at work here gets to end by itself when its time is up."""
_OVER_SECONDS = 10.0
"""How long anybody here waits for a run that was stopped: one that does not stop is not waited for."""


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
        self.parking: asyncio.TimerHandle | None = None
        """When it is looked at whether it still only waits."""
        self.waits_since = 0.0
        self.awaited: tuple[str, ...] = ()
        """The children that it was waiting for when it was put aside."""
        self.is_cancelled = False
        self.stopped_because = ""
        """Why a run above it has stopped it, when that run's own end says so and nothing was sent."""
        self.is_late = False
        self.is_ending = False
        self.is_over = asyncio.Event()

    @property
    def only_waits(self) -> bool:
        """Whether nothing goes on but waiting for messages, none of which has come, or for children."""
        waiting, joining = self.context.waiting, self.context.joining
        return bool(waiting or joining) and not self.context.busy and not any(come.done() for come in waiting)

    def stop(self) -> None:
        """Interrupt the flow; one that has not begun looks by itself, and cancelled before that would never end."""
        self.context.is_stopped = True
        if self.has_begun and self.task is not None:
            self.task.cancel()

    async def over(self) -> None:
        """Wait until nothing of it goes on."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_OVER_SECONDS):
                await self.is_over.wait()


async def leave_nothing(_: str) -> None:
    """What is cleaned up behind a run where nothing can be left."""


async def keep_nothing(_place: Workplace, _label: str, outcome: Outcome) -> Outcome:
    """What is kept of a run's own place where nobody has one."""
    return outcome


class Crew(Generic[L]):
    """Carries runs out as tasks of a group that belongs to the engine."""

    def __init__(
        self,
        journal: Journal[L],
        workflow: Workflow,
        world: World,
        group: asyncio.TaskGroup,
        clean_up: Callable[[str], Awaitable[None]] = leave_nothing,
        *,
        keep: Callable[[Workplace, str, Outcome], Awaitable[Outcome]] = keep_nothing,
        suspend_seconds: float = SUSPEND_SECONDS,
        is_over: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.world = world
        self._is_over = is_over
        """Hears of every end, also of runs that were put aside and came to theirs without being taken up."""
        self._suspend_seconds = suspend_seconds
        self._clean_up = clean_up
        """Ends what a step of a run may have left in the world when its process died."""
        self._keep = keep
        """Gives an outcome what a run that was stopped has done in a place of its own."""
        self._journal = journal
        self._workflow = workflow
        self._group = group
        self._work: dict[str, _Work[L]] = {}
        self._starting: Counter[str] = Counter()
        """Runs that are being put to work: the journal may show them before anything of them is here."""
        self._unwanted: set[str] = set()
        """Runs that were cancelled while they were being started."""
        self._parked: set[str] = set()
        """Runs put aside until a message comes: anybody may take them up."""
        self._suspended: set[str] = set()
        """Runs put aside until a child ends: they stay this process's, and this is all that is in memory of them."""
        self._patient = 0
        """How many runs only wait, and are not put aside yet."""
        self._troubles: dict[str, StorageError] = {}
        self._tries: dict[str, tuple[Counts, int]] = {}
        """How often a run was gone on with after trouble, since it had done how much."""
        self._awaited: dict[str, list[asyncio.Future[Ended | None]]] = {}
        self._leaving = False

    # --- going to work ------------------------------------------------------------------------------------------------

    @contextmanager
    def starting(self, run: str) -> Generator[None]:
        """Keep everybody else here from taking up a run while it is being put to work."""
        self._starting[run] += 1
        try:
            yield
        finally:
            self._starting[run] -= 1
            if not self._starting[run]:
                del self._starting[run]
                self._unwanted.discard(run)

    def start(self, lease: L, birth: Birth, history: Sequence[Record] = (), *, is_late: bool = False) -> None:
        """Put a run to work; one that is late only ends."""
        if self._leaving:
            # Nobody would stop it any more, and whoever comes next goes on with it.
            return
        work = _Work(LocalContext(self, self._journal, lease, history), lease)
        self._work[lease.run] = work
        work.is_cancelled = lease.run in self._unwanted
        work.is_late = is_late
        self._troubles.pop(lease.run, None)
        self._parked.discard(lease.run)
        self._suspended.discard(lease.run)
        work.task = self._group.create_task(self._carry_out(work, birth))

    async def go_on(self, lease: L, *, is_late: bool = False) -> None:
        """Put a run to work from where its records leave it."""
        history = await self._journal.records(lease.run)
        birth = next((record.event for record in history if isinstance(record.event, Opened | Requested)), None)
        if birth is None:
            raise UnknownRun(lease.run)
        self.start(lease, birth, history, is_late=is_late)

    async def next_round(self, run: str, *, anew: bool = False) -> int:
        """The round that sets a run to work again: the one it is in, when that goes on or, unless anew, completed."""
        state = await self._journal.state(run)
        if state is None:
            raise UnknownRun(run)
        is_done = state.status == "completed" and not anew
        return state.round if state.is_live or is_done else state.round + 1

    async def resume(self, run: str, number: int, message: Any, *, within: float | None) -> None:
        """Have a run in this round: begun by now, going on, or behind it already."""
        state = await self._journal.state(run)
        if state is not None and not state.is_live and state.round < number:
            with suppress(LeaseHeld):
                await self.begin_round(run, message, within=within)
        else:
            await self.ensure(run)

    async def begin_round(
        self, run: str, message: Any, *, seconds: float | None = None, within: float | None = None
    ) -> int:
        """Start another round of a run that has ended; gives its number."""
        if run in self._starting:
            raise LeaseHeld(run, "this process")
        with self.starting(run):
            lease = await self._journal.acquire(run)
            try:
                resumed = self._resumed(lease.state, message, seconds, within)
                await self._journal.append(lease, f"resumed:{resumed.round}", resumed)
                await self.go_on(lease)
            except BaseException:
                await self._let_go(lease)
                raise
            return resumed.round

    def _resumed(self, state: State, message: Any, seconds: float | None, within: float | None) -> Resumed:
        """The beginning of the next round."""
        if state.is_live:
            raise UsageError("ID", state.run, f"this run is {state.status}; only one that has ended is resumed")
        # A round has the time that the one before it had, unless another is given, and never its caller's last.
        seconds = state.seconds if seconds is None else seconds
        return Resumed(
            round=state.round + 1,
            message=UNSET if message is None else Raw(json.encode(message)),
            seconds=seconds,
            deadline=None if within is None else inherited_deadline(self.world.now(), within, seconds),
        )

    async def ensure(self, run: str) -> bool:
        """Put a run to work that should be and is not; whether that was so."""
        if run in self._work or run in self._starting:
            return False
        with self.starting(run):
            try:
                return await self._adopt(run)
            except (LeaseHeld, LeaseLost):
                return False
            except StorageCorrupt as error:
                # One damaged run must not keep anybody from all others.
                self._troubles[run] = error
                self._tell(run)
                return False

    async def _adopt(self, run: str) -> bool:
        state = await self._journal.state(run)
        if state is None or not state.is_live:
            return False
        lease = await self._journal.acquire(run)
        try:
            # Somebody may have ended it since, or wanted it stopped while nobody was there to do it.
            if lease.state.is_live:
                await self._journal.take(lease, _cancel_key(lease.state), CANCEL)
            await self._clear_away(lease.state)
            if lease.state.is_live:
                await self.go_on(lease, is_late=await self._is_late(lease.state, self.world.now()))
                return True
        except StorageCorrupt as error:
            # It can never go on; whoever waits for it gets that as its ending.
            found = SoFar().fields(lease.state, self.world.now())
            ending = Returned(outcome=failed_by(error, found))
            await self._journal.finish(lease, _ending_key(lease.state.round), ending)
            self._tell(run)
        finally:
            if run not in self._work:
                await self._let_go(lease)
        return False

    async def _let_go(self, lease: L) -> None:
        """Give up the lease of a run that was not put to work; one that cannot be given up is ours to see to."""
        try:
            await self._journal.release(lease)
        except LeaseLost:
            return
        except StorageError as trouble:
            self._troubles.setdefault(lease.run, trouble)

    @property
    def is_leaving(self) -> bool:
        """Whether all work here is being left to whoever comes next."""
        return self._leaving

    def minds(self, run: str | None) -> bool:
        """Whether a run is at work here, or was put aside here until its children end."""
        return run in self._work or run in self._suspended

    async def take_up(self, run: str | None) -> None:
        """Go on with a run that was put aside here until its children end."""
        if run is None or run not in self._suspended or self._leaving:
            return
        await self.ensure(run)

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
                ended = await self.ended_by_now(run) or await over
                if ended is not None:
                    return ended
            finally:
                waiting = self._awaited[run]
                waiting.remove(over)
                if not waiting:
                    del self._awaited[run]

    async def ended_by_now(self, run: str) -> Ended | None:
        """How a run has ended; None when it goes on."""
        if run in self._work:
            return None
        state = await self._journal.state(run)
        if state is None:
            raise UnknownRun(run)
        if not state.is_live:
            return Ended(state, await self.outcome(run, state.round))
        if run in self._troubles:
            raise self._troubles[run]
        return None

    async def outcome(self, run: str, number: int) -> Outcome:
        """How a round of a run ended."""
        record = await self._journal.get(run, _ending_key(number))
        if record is None or not isinstance(record.event, Returned | Refused):
            raise UnknownRun(run)
        return record.event.outcome

    async def draw_ids(self, count: int) -> list[str]:
        """So many session ids that no run has."""
        tried: set[str] = set()
        drawn: list[str] = []
        while len(drawn) < count:
            fresh = [self._draw_id(tried) for _ in range(count - len(drawn))]
            known = await self._journal.known(fresh)
            drawn += [one for one in fresh if one not in known]
        return drawn

    def _draw_id(self, tried: set[str]) -> str:
        drawn = new_session_id(
            int(self.world.now()), lambda: self.world.draw(ID_LETTERS, ID_LENGTH), tried.__contains__
        )
        tried.add(drawn)
        return drawn

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
                await work.over()
                work = self._work.get(run)
            if work is None and topic == CANCEL and run in self._starting:
                self._unwanted.add(run)
            elif work is None:
                await self._wake(run, topic, is_ours=wake or run in self._parked or run in self._suspended)
            elif topic == CANCEL:
                self._stop(work)
            else:
                work.context.notice()

    async def _wake(self, run: str, topic: str, *, is_ours: bool) -> None:
        state = await self._journal.state(run)
        if state is not None and (topic == CANCEL or (is_ours and topic in state.waits.values())):
            await self.ensure(run)

    def park_soon(self, run: str) -> None:
        """Put a run aside if it still only waits after a while."""
        work = self._work.get(run)
        if work is None or work.is_parking or not work.only_waits:
            return
        loop = asyncio.get_running_loop()
        work.waits_since = loop.time()
        due = work.waits_since + self._patience(work)
        if work.parking is not None and work.parking.when() <= due:
            # It looks by itself how long it has been since.
            return
        self._look_again(work, due)

    def _look_again(self, work: _Work[L], due: float) -> None:
        self._never_mind(work)
        self._patient += 1
        work.parking = asyncio.get_running_loop().call_at(due, self._park, work)

    def _never_mind(self, work: _Work[L]) -> None:
        if work.parking is not None:
            work.parking.cancel()
            work.parking = None
            self._patient -= 1

    def _patience(self, work: _Work[L]) -> float:
        """How long a run that only waits stays in memory."""
        if not work.context.joining:
            return PARK_SECONDS
        usual = self._suspend_seconds
        if self._patient > MANY_WAITING:
            usual = min(usual, SUSPEND_SOON_SECONDS)
        return usual and usual + _RECORD_SECONDS * work.lease.state.seq

    def _park(self, work: _Work[L]) -> None:
        self._never_mind(work)
        if work.task is None or work.is_parking or not work.only_waits:
            return
        due = work.waits_since + self._patience(work)
        if due > asyncio.get_running_loop().time():
            self._look_again(work, due)
            return
        work.is_parking = True
        work.awaited = tuple(work.context.joining)
        work.context.is_put_aside = True
        work.task.cancel()

    # --- stopping -----------------------------------------------------------------------------------------------------

    async def stop_tree(self, run: str, reason: str) -> None:
        """Want a run and all runs below it stopped."""
        state = await self._journal.state(run)
        if state is None:
            raise UnknownRun(run)
        # First the top: if those below ended first, it might go on from their ends as if nothing had been asked.
        await self.stop_all([state], reason)
        await self.stop_all(await self._journal.descendants(run), reason)

    async def stop_all(self, states: Sequence[State], reason: str) -> None:
        """Want all these runs stopped, asked together so that they are asked in one commit."""
        try:
            async with asyncio.TaskGroup() as asking:
                for state in states:
                    work = self._work.get(state.run)
                    if state.is_live and not (work is not None and work.is_cancelled):
                        asking.create_task(self._ask_to_stop(state, reason))
        except ExceptionGroup as raised:
            trouble = storage_trouble(raised)
            if trouble is None:
                raise
            raise trouble from raised

    async def stop_below(self, states: Sequence[State], reason: str) -> None:
        """Stop runs below one that is known to stop: those at work here need no message that could be lost."""
        elsewhere: list[State] = []
        for state in states:
            work = self._work.get(state.run)
            if work is None or work.is_parking:
                elsewhere.append(state)
            elif not (work.is_cancelled or work.is_late):
                work.stopped_because = reason
                self._stop(work)
        await self.stop_all(elsewhere, reason)

    async def _ask_to_stop(self, state: State, reason: str) -> None:
        await self._journal.send(state.run, CANCEL, f"{CANCEL}:{state.round}", json.encode(reason))
        await self.hear([(state.run, CANCEL)])

    def _stop(self, work: _Work[L]) -> None:
        if not (work.is_cancelled or work.is_late or work.is_ending):
            work.is_cancelled = True
            work.stop()

    async def _stop_children(self, run: str, *, is_late: bool) -> None:
        children = await self._journal.descendants(run)
        if is_late:
            await self.end_late(children)
        else:
            await self.stop_below(children, "its caller was cancelled")
        for child in children:
            if child.run in self._work:
                await self._work[child.run].over()

    # --- time is up ---------------------------------------------------------------------------------------------------

    async def stop_late(self) -> None:
        """Stop the runs at work here that did not end by themselves when their time was up."""
        now = self.world.now() - GRACE_SECONDS
        for work in [work for work in self._work.values() if seconds_late(work.lease.state, now)]:
            if not work.is_late and await self._is_late(work.lease.state, now):
                self._stop_late(work)

    async def end_late(self, states: Iterable[State]) -> list[str]:
        """End runs whose time is up, whoever is at work on them; gives those that nobody here was at work on."""
        ended: list[str] = []
        for state in states:
            work = self._work.get(state.run)
            if work is not None:
                self._stop_late(work)
            elif state.is_live and state.run not in self._starting and await self._journal.expire(state):
                await self._clear_away(state)
                self._suspended.discard(state.run)
                self._is_over(state.run)
                self._tell(state.run)
                await self.take_up(state.parent)
                ended.append(state.run)
        return ended

    def _stop_late(self, work: _Work[L]) -> None:
        if not (work.is_cancelled or work.is_late or work.is_ending):
            work.is_late = True
            work.stop()

    async def _is_late(self, state: State, now: float) -> bool:
        """Whether a run's time is up, and nobody below it still has some."""
        return bool(seconds_late(state, now)) and not has_time_below(await self._journal.descendants(state.run), now)

    async def _clear_away(self, state: State) -> None:
        """End what a step that must not be repeated may have left running."""
        if any(not step.is_repeatable for step in state.under_way.values()):
            await self._clean_up(state.run)

    def leave(self) -> None:
        """Stop all work without ending it: whoever comes next goes on with it."""
        self._leaving = True
        for work in self._work.values():
            work.context.is_left = True
            if work.task is not None:
                work.task.cancel()

    # --- from the flow to the outcome ---------------------------------------------------------------------------------

    async def _carry_out(self, work: _Work[L], birth: Birth) -> None:
        run = work.lease.run
        ended: Ended | None = None
        try:
            ending = await self._outcome_of(work, birth)
            work.is_ending = True
            if ending is not None:
                ending = await self._whole(work, ending)
            if ending is None and work.awaited:
                self._suspended.add(run)
            elif ending is None:
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
            if self._is_worth_trying(work.lease.state, error):
                self._group.create_task(self._try_again(run, error))
            else:
                ended = await self._ended_by(error, work)
        finally:
            self._never_mind(work)
            work.is_over.set()
            if self._work.get(run) is work:
                del self._work[run]
            self._tell(run, ended)
        # What the journal keeps from being seen here is seen when it is looked at again.
        if ended is not None:
            self._is_over(run)
        with suppress(StorageError):
            if ended is not None:
                await self.take_up(ended.state.parent)
            elif run in self._suspended and await self._has_ended(work.awaited):
                # A child ended while the run was being put aside, and found nobody to tell.
                await self.take_up(run)

    async def _has_ended(self, runs: Iterable[str]) -> bool:
        """Whether one of these runs has ended."""
        for run in runs:
            if not self.minds(run):
                state = await self._journal.state(run)
                if state is not None and not state.is_live:
                    return True
        return False

    async def _outcome_of(self, work: _Work[L], birth: Birth) -> Outcome | None:
        """How the run ended; None when it was only put aside."""
        work.has_begun = True
        try:
            if not (work.is_cancelled or work.is_late or work.lease.state.is_cancelling):
                outcome = await self._workflow(work.context, birth)
                await work.context.durable()
                return outcome
        except asyncio.CancelledError:
            if self._leaving or not (work.is_cancelled or work.is_late or work.is_parking):
                raise
            if not (work.is_cancelled or work.is_late):
                return None
        except Exception as bug:  # whatever a flow raises, its run must come to an outcome
            trouble = storage_trouble(bug)
            if trouble is not None:
                raise trouble from bug
            return await self._failed(work, bug)
        # Whoever stops it again must not interrupt its ending.
        is_late, work.is_cancelled = work.is_late, True
        found = await self._found(work, is_late=is_late)
        if is_late and not work.lease.state.is_cancelling:
            return await self._stopped_late(work)
        unknown = " What the call under way had used is not known." if work.context.so_far.is_use_unknown else ""
        return Cancelled(**found, summary=f"Cancelled; what was found until then is kept.{unknown}")

    def _is_worth_trying(self, state: State, trouble: StorageError) -> bool:
        """Whether a run may go on by itself after trouble: it may have been for a moment, and not again and again."""
        counts, times = self._tries.get(state.run, (state.counts, 0))
        times = times + 1 if counts == state.counts else 1
        self._tries[state.run] = (state.counts, times)
        return trouble.retryable and times <= len(_AGAIN_SECONDS) and not self._leaving

    async def _try_again(self, run: str, trouble: StorageError) -> None:
        """Go on with a run from its records after a moment; whoever waits for it hears of trouble that stays."""
        await asyncio.sleep(_AGAIN_SECONDS[self._tries[run][1] - 1])
        try:
            await self.ensure(run)
        except StorageError:
            await self._give_up(run, trouble)

    async def _give_up(self, run: str | None, trouble: StorageError) -> None:
        """Let whoever waits for a run hear of trouble that stays; who was put aside until it ends waits no longer."""
        while run is not None:
            self._troubles[run] = trouble
            self._suspended.discard(run)
            self._tell(run)
            with suppress(StorageError):
                state = await self._journal.state(run)
                run = None if state is None else state.parent
            if run not in self._suspended:
                return

    async def _ended_by(self, trouble: StorageError, work: _Work[L]) -> Ended | None:
        """End a run whose storage failed, if that can be written; if not, its records say where to go on from."""
        work.is_cancelled = True
        try:
            # The old lease has lost a record, and takes none after it.
            work.lease = await self._journal.acquire(work.lease.run)
            outcome = await self._whole(work, failed_by(trouble, await self._found(work)))
            key = _ending_key(work.lease.state.round)
            return _ended(work.lease.state, await self._journal.finish(work.lease, key, Returned(outcome=outcome)))
        except (LeaseHeld, LeaseLost):
            return None
        except StorageError:
            await self._give_up(work.lease.run, trouble)
            return None

    async def _whole(self, work: _Work[L], ending: Outcome) -> Outcome:
        """An ending with what is not the flow's own: what it left in its place, and what those below it used."""
        so_far, state = work.context.so_far, work.lease.state
        if so_far.place is not None:
            ending = await self._keep(so_far.place, state.label, ending)
        elif not ending.branch:
            ending = so_far.with_place(ending)
        return with_all_below(ending, await self._below(state))

    async def _below(self, state: State) -> Sequence[State]:
        return await self._journal.descendants(state.run) if state.counts.children else ()

    async def _found(self, work: _Work[L], *, is_late: bool = False) -> dict[str, Any]:
        """What a run has found whose flow stopped, when nothing of it goes on any more."""
        # The flow begins nothing after this, and what it began last, a child perhaps, is durable when this is.
        key = _cancel_key(work.lease.state)
        if work.stopped_because:
            await self._journal.append(work.lease, key, CancelAsked(reason=work.stopped_because))
        else:
            await self._journal.take(work.lease, key, CANCEL)
        state = work.lease.state
        if state.counts.children:
            await self._stop_children(state.run, is_late=is_late)
        return work.context.so_far.fields(state, self.world.now())

    async def _stopped_late(self, work: _Work[L]) -> Partial:
        state = work.lease.state
        ended = [child for child in await self._below(state) if child.parent == state.run and not child.is_live]
        results = [Result(label=child.label, outcome=await self.outcome(child.run, child.round)) for child in ended]
        return stopped_late(work.context.so_far, state, results, self.world.now())

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
