"""RunSupervisor: starts, wakes and ends the runs of this process."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic

from deputy.core.errors import DeputyError, LeaseHeld, LeaseLost, StorageAway, StorageCorrupt, StorageError, UnknownRun
from deputy.core.events import CANCEL, AdmissionRefused, Requested, Returned, RunOpened
from deputy.core.outcome import Rejected
from deputy.core.request import ID_LENGTH, ID_LETTERS, new_session_id
from deputy.engine.partial_result import PartialResult
from deputy.engine.ports import L
from deputy.runtime.active_run import ActiveRun, CompletedRun, HostedRuns, cancel_key, ending_key
from deputy.runtime.cancellation import Canceller
from deputy.runtime.completions import Completions
from deputy.runtime.context import DurableRunContext
from deputy.runtime.finalize import Finalizer, failed_by, failed_by_bug, keep_no_worktree, storage_trouble, traced
from deputy.runtime.resume_run import ResumeRounds
from deputy.runtime.start_strategy import Here, Placed
from deputy.runtime.suspension import SUSPEND_SECONDS, SuspendedRuns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence

    from deputy.core.events import Event, Record
    from deputy.core.outcome import Outcome
    from deputy.core.state import Counts, State
    from deputy.engine.ports import Journal, PlacingJournal, RunStart, Workflow, Worktree, World
    from deputy.runtime.observation import Observation

_RETRY_SECONDS = (0.05, 0.5)
"""The delays before the automatic retries after a storage error."""


async def no_cleanup(_: str) -> None:
    """The default for engines without processes."""


class RunSupervisor(Generic[L]):
    """Executes runs as tasks of the engine's task group."""

    def __init__(
        self,
        journal: Journal[L],
        workflow: Workflow,
        world: World,
        group: asyncio.TaskGroup,
        clean_up: Callable[[str], Awaitable[None]] = no_cleanup,
        *,
        keep: Callable[[Worktree, str, Outcome], Awaitable[Outcome]] = keep_no_worktree,
        suspend_seconds: float = SUSPEND_SECONDS,
        is_over: Callable[[State], None] = lambda _: None,
        observation: Observation | None = None,
        placing: PlacingJournal[L] | None = None,
        queue_for: Callable[[RunStart], str] = lambda _: "",
    ) -> None:
        self.world = world
        self.starts: Here[L] = Here(self, journal) if placing is None else Placed(self, journal, placing, queue_for)
        """Starts runs here, or places them."""
        self.observation = observation
        self.work: dict[str, ActiveRun[L]] = {}
        """The active runs."""
        self.parking: SuspendedRuns[L] = SuspendedRuns(suspend_seconds)
        self.endings = Completions(journal, self.work.__contains__)
        self.stopping = Canceller(self, journal)
        self.rounds = ResumeRounds(self, journal)
        self._closing = Finalizer(journal, world, self.endings, self.stopping, keep)
        self._on_end = is_over
        """Called for every ended run, including suspended runs that ended without being resumed."""
        self._clean_up = clean_up
        """Stops the processes that a dead process's steps left."""
        self._journal = journal
        self._workflow = workflow
        self._group = group
        self._starting: Counter[str] = Counter()
        """Runs that are being started: the journal may show them before they are active here."""
        self._unwanted: set[str] = set()
        """Runs that were cancelled while being started."""
        self._tries: dict[str, tuple[Counts, int]] = {}
        """The number of retries after storage errors, reset by progress."""
        self._leaving = False
        self.fenced = 0
        """How many runs another process took."""
        self.repeated = 0
        """How many steps were begun again."""

    # --- starting -----------------------------------------------------------------------------------------------------

    @contextmanager
    def starting(self, run: str) -> Generator[None]:
        """Reserve a run while it is being started."""
        self._starting[run] += 1
        try:
            yield
        finally:
            self._starting[run] -= 1
            if not self._starting[run]:
                del self._starting[run]
                self._unwanted.discard(run)

    def want(self, run: str) -> None:
        """Drop a cancel that came while the run was being started."""
        self._unwanted.discard(run)

    def start(self, lease: L, start: RunStart, history: Sequence[Record] = (), *, is_late: bool = False) -> None:
        """Start a run; a late run only ends."""
        if self._leaving:
            # Nothing would stop it any more; another process can resume it.
            return
        if self.observation is not None:
            self.observation.run_started(lease.state, start, is_resumed=bool(history))
        work = ActiveRun(DurableRunContext(self, self._journal, lease, history), lease)
        self.work[lease.run] = work
        self.stopping.watch_deadline(work)
        work.is_cancelled = lease.run in self._unwanted
        work.is_late = is_late
        self.endings.forget_trouble(lease.run)
        self.parking.forget(lease.run)
        work.task = self._group.create_task(self._execute(work, start))

    async def resume_run(self, lease: L) -> None:
        """Resume a run from its records; an overdue run only ends."""
        is_late = await self.stopping.is_late(lease.state, self.world.now())
        history = await self._journal.records(lease.run)
        start = next((record.event for record in history if isinstance(record.event, RunOpened | Requested)), None)
        if start is None:
            raise UnknownRun(lease.run)
        self.start(lease, start, history, is_late=is_late)

    async def ensure_running(self, run: str, *, is_here: bool = False) -> bool:
        """Resume a live run that is not active; whether it was resumed. `is_here`: in this process in any case."""
        if run in self.work or run in self._starting:
            return False
        with self.starting(run):
            try:
                is_placed = None if is_here else await self.starts.place(run)
                return await self._adopt(run) if is_placed is None else is_placed
            except (LeaseHeld, LeaseLost):
                return False
            except StorageCorrupt as error:
                # A damaged run must not block the others.
                self.endings.trouble(run, error)
                return False

    async def _adopt(self, run: str) -> bool:
        state = await self._journal.state(run)
        if state is None or not state.is_live:
            self._forget_trouble(run)
            return False
        return await self.continue_run(await self._journal.acquire(run))

    async def continue_run(self, lease: L) -> bool:
        """Resume a run whose lease was just taken; whether it goes on."""
        run = lease.run
        try:
            # The run may have been ended or cancelled while no process held it.
            if lease.state.is_live:
                await self._journal.receive_message(lease, cancel_key(lease.state), CANCEL)
            await self._remove_run(lease.state)
            if lease.state.is_live:
                await self.resume_run(lease)
                return True
        except StorageCorrupt as error:
            # A damaged run can never continue; its waiters get this outcome.
            await self._end_unread(lease, failed_by(error, self._unread(lease)))
        except Exception as bug:
            # An error of Deputy may be gone at the next try; a missing first record is not.
            is_passing = isinstance(bug, DeputyError) and not isinstance(bug, UnknownRun)
            if is_passing or not lease.queue:
                raise
            # Every worker would meet the same, one after another for ever.
            await self._end_unread(lease, failed_by_bug(bug, self._unread(lease)), traced(bug))
        finally:
            if run not in self.work:
                await self.release(lease)
        return False

    def _unread(self, lease: L) -> dict[str, Any]:
        return PartialResult().fields(lease.state, self.world.now())

    async def _end_unread(self, lease: L, outcome: Outcome, trace: str = "") -> None:
        """End a run whose records cannot be continued."""
        ending = Returned(outcome=outcome, trace=trace)
        await self._journal.finish(lease, ending_key(lease.state.round), ending)
        self._forget_trouble(lease.run)
        self.endings.notify(lease.run)

    async def release(self, lease: L) -> None:
        """Release the lease of a run that was not started; a failure is kept as its storage error."""
        try:
            await self.starts.let_go(lease)
        except LeaseLost:
            return
        except StorageError as trouble:
            self.endings.note_trouble(lease.run, trouble)

    @property
    def is_leaving(self) -> bool:
        """Whether this process is closing."""
        return self._leaving

    def owns(self, run: str | None) -> bool:
        """Whether a run is active here, or suspended here until a child ends."""
        return run in self.work or self.parking.is_suspended(run)

    def is_starting(self, run: str) -> bool:
        """Whether a run is being started."""
        return run in self._starting

    async def resume_suspended(self, run: str | None) -> None:
        """Resume a run that was suspended here until a child ends."""
        if run is None or not self.parking.is_suspended(run) or self._leaving:
            return
        try:
            await self.ensure_running(run)
        except StorageError as trouble:
            self._group.create_task(self._retry_later(run, trouble))

    async def end_elsewhere(self, ended: State) -> None:
        """Report the end of a run that another process may have continued and ended."""
        if self.parking.has(ended.run) and ended.run not in self.work:
            self.parking.forget(ended.run)
            self._is_over(ended, is_elsewhere=True)
        self.endings.notify(ended.run)
        await self.resume_suspended(ended.parent)

    async def finalize_absent(self, state: State) -> None:
        """Clean up after a suspended or foreign run that ended without being resumed here.

        `state` is the state before the end, which lists the interrupted steps.
        """
        await self._remove_run(state)
        self.parking.forget(state.run)
        self._forget_trouble(state.run)
        ended = state
        with suppress(StorageError):
            ended = await self._journal.state(state.run) or state
        self._is_over(ended)
        await self.end_elsewhere(ended)

    def hosted(self) -> HostedRuns:
        """What this process holds now, and what it has lost and repeated so far."""
        waiting = sum(work.only_waits for work in self.work.values())
        return HostedRuns(len(self.work) - waiting, waiting, self.fenced, self.repeated)

    def suspend_soon(self, run: str) -> None:
        """Suspend a run if it still only waits after a while."""
        work = self.work.get(run)
        if work is not None:
            if work.only_waits:
                work.is_settled.set()
            self.parking.suspend_soon(work)

    def hand_over(self, run: str) -> None:
        """Leave a run to another worker, now that no step of it is under way."""
        work = self.work.get(run)
        if work is not None:
            work.hand_over()

    # --- for the rest of the runtime ----------------------------------------------------------------------------------

    async def new_ids(self, count: int) -> list[str]:
        """New session ids."""
        tried: set[str] = set()
        drawn: list[str] = []
        while len(drawn) < count:
            fresh = [self._new_id(tried) for _ in range(count - len(drawn))]
            known = await self._journal.known(fresh)
            drawn += [one for one in fresh if one not in known]
        return drawn

    def _new_id(self, tried: set[str]) -> str:
        drawn = new_session_id(
            int(self.world.wall()), lambda: self.world.random_string(ID_LETTERS, ID_LENGTH), tried.__contains__
        )
        tried.add(drawn)
        return drawn

    async def poll(self, *, wake: bool) -> None:
        """Handle messages and ends from other processes."""
        await self.deliver(await self._journal.addressed(), wake=wake)
        for run in self.endings.awaited:
            state = await self._journal.state(run)
            if state is not None and not state.is_live:
                await self.end_elsewhere(state)

    # --- messages -----------------------------------------------------------------------------------------------------

    async def deliver(self, addressed: Iterable[tuple[str, str]], *, wake: bool = False) -> None:
        """Notify runs of messages; suspended runs are resumed if they belong to this process or `wake` is set."""
        for run, topic in addressed:
            work = self.work.get(run)
            if work is not None and work.is_parking:
                await work.over()
                work = self.work.get(run)
            if work is None and topic == CANCEL and run in self._starting:
                self._unwanted.add(run)
            elif work is None:
                await self._wake(run, topic, is_ours=wake or self.parking.has(run))
            elif topic == CANCEL:
                work.cancel()
            else:
                work.context.notice()

    async def _wake(self, run: str, topic: str, *, is_ours: bool) -> None:
        state = await self._journal.state(run)
        if state is None:
            return
        is_ours = is_ours or self.owns(state.parent)
        if topic == CANCEL:
            # It only ends, which needs no worker.
            await self.ensure_running(run, is_here=True)
        elif is_ours and topic in state.waits.values():
            await self.ensure_running(run)

    async def _remove_run(self, state: State) -> None:
        """Stop processes that a non-repeatable step may have left."""
        if any(not step.is_repeatable for step in state.under_way.values()):
            await self._clean_up(state.run)

    def close(self) -> None:
        """Stop all tasks without ending their runs, which another process can resume."""
        self._leaving = True
        for work in self.work.values():
            work.context.is_leaving = True
            if work.task is not None:
                work.task.cancel()

    # --- from the flow to the outcome ---------------------------------------------------------------------------------

    async def _execute(self, work: ActiveRun[L], start: RunStart) -> None:
        run = work.lease.run
        ended: CompletedRun | None = None
        is_suspended = True
        try:
            ending = await self._outcome_of(work, start)
            work.is_ending = True
            if ending is not None:
                ending = await self._closing.completed_outcome(work, ending)
            if ending is None:
                is_suspended = await self.starts.suspend(work)
            else:
                key = ending_key(work.lease.state.round)
                event: Event = (
                    AdmissionRefused(outcome=ending)
                    if isinstance(ending, Rejected)
                    else Returned(outcome=ending, trace=work.trace)
                )
                record = await self._journal.finish(work.lease, key, event)
                ended = _ended(work.lease.state, record)
        except LeaseLost:
            # Another process holds the run now and will end it.
            self.fenced += 1
            return
        except StorageError as error:
            ended = await self._stopped_by(error, work)
        finally:
            self.parking.cancel_suspend(work)
            work.is_over.set()
            work.is_settled.set()
            if self.work.get(run) is work:
                del self.work[run]
            if ended is not None:
                self._forget_trouble(run)
            self.endings.notify(run, ended)
        # What fails here is seen again at the next poll.
        if ended is not None:
            self._is_over(ended.state, ended.outcome)
        with suppress(StorageError):
            if ended is not None:
                await self.resume_suspended(ended.state.parent)
            elif not is_suspended:
                # What it waits for has come meanwhile.
                await self.resume_run(work.lease)
            elif self.parking.is_suspended(run) and await self._has_ended(work.awaited):
                # A child ended while the run was being suspended, and found no waiter.
                await self.resume_suspended(run)

    def _is_over(self, state: State, outcome: Outcome | None = None, *, is_elsewhere: bool = False) -> None:
        self._on_end(state)
        if self.observation is not None:
            self.observation.run_ended(state, outcome, is_elsewhere=is_elsewhere)

    async def _has_ended(self, runs: Iterable[str]) -> bool:
        for run in runs:
            if not self.owns(run):
                state = await self._journal.state(run)
                if state is not None and not state.is_live:
                    return True
        return False

    async def _outcome_of(self, work: ActiveRun[L], start: RunStart) -> Outcome | None:
        """The outcome of the flow; None if the run was suspended."""
        work.has_begun = True
        if work.is_handing_over and not (work.is_cancelled or work.is_late):
            return None
        try:
            if not (work.is_cancelled or work.is_late or work.lease.state.is_cancelling):
                outcome = await self._workflow(work.context, start)
                await work.context.durable()
                return outcome
        except asyncio.CancelledError as cancelled:
            if self._leaving:
                raise
            if not (work.is_cancelled or work.is_late or work.is_parking or work.is_handing_over):
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # No one asked for this cancellation, so the run must end here.
                return await self._closing.failed(work, _cancelled_within(cancelled))
            if not (work.is_cancelled or work.is_late):
                return None
        except Exception as bug:  # every run must get an outcome
            trouble = storage_trouble(bug)
            if trouble is not None:
                raise trouble from bug
            return await self._closing.failed(work, bug)
        return await self._closing.stopped(work)

    async def _stopped_by(self, trouble: StorageError, work: ActiveRun[L]) -> CompletedRun | None:
        """Handle a storage error of a run: leave it, retry it, or end it."""
        if self._leaving:
            return None
        if isinstance(trouble, StorageAway):
            # The journal has waited long enough; the run stays live for a later resume.
            await self._give_up(work.lease.run, trouble)
            return None
        if not self._is_retryable(work.lease.state, trouble):
            return await self._ended_by(trouble, work)
        self._group.create_task(self._retry_later(work.lease.run, trouble))
        return None

    def _is_retryable(self, state: State, trouble: StorageError) -> bool:
        """Whether a run may be retried after a storage error: the error is temporary, and retries are left."""
        counts, times = self._tries.get(state.run, (state.counts, 0))
        times = times + 1 if counts == state.counts else 1
        self._tries[state.run] = (state.counts, times)
        return trouble.retryable and times <= len(_RETRY_SECONDS)

    async def _retry_later(self, run: str, trouble: StorageError) -> None:
        """Resume a run after a delay; its waiters get an error that persists."""
        times = self._tries.get(run, (None, 1))[1]
        await asyncio.sleep(_RETRY_SECONDS[min(times, len(_RETRY_SECONDS)) - 1])
        try:
            await self.ensure_running(run)
        except StorageError:
            await self._give_up(run, trouble)

    def _forget_trouble(self, run: str) -> None:
        self._tries.pop(run, None)
        self.endings.forget_trouble(run)

    async def _give_up(self, run: str | None, trouble: StorageError) -> None:
        """Report a persistent storage error to the waiters of a run and of its suspended ancestors."""
        while run is not None:
            self.parking.forget(run)
            self.endings.trouble(run, trouble)
            with suppress(StorageError):
                state = await self._journal.state(run)
                run = None if state is None else state.parent
            if not self.parking.is_suspended(run):
                return

    async def _ended_by(self, trouble: StorageError, work: ActiveRun[L]) -> CompletedRun | None:
        """End a run whose storage failed, if that can be written; if not, its records allow a resume."""
        work.is_cancelled = True
        try:
            # The old lease has lost a record and accepts none after it.
            work.lease = await self._journal.acquire(work.lease.run)
            outcome = await self._closing.failed_by(work, trouble)
            key = ending_key(work.lease.state.round)
            return _ended(work.lease.state, await self._journal.finish(work.lease, key, Returned(outcome=outcome)))
        except (LeaseHeld, LeaseLost):
            return None
        except StorageError:
            await self._give_up(work.lease.run, trouble)
            return None


def _ended(state: State, record: Record) -> CompletedRun | None:
    """The recorded end of a run; an earlier record wins."""
    event = record.event
    return CompletedRun(state, event.outcome) if isinstance(event, Returned | AdmissionRefused) else None


def _cancelled_within(cancelled: asyncio.CancelledError) -> RuntimeError:
    mistake = RuntimeError("an awaited operation was cancelled, although the run was not")
    mistake.__cause__ = cancelled
    return mistake
