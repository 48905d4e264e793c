"""A journal in memory with group commit, leases, fencing, crashes and storage errors."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import UNSET, Raw, json

from deputy.core.errors import LeaseHeld, LeaseLost, StorageError, UnknownRun
from deputy.core.events import (
    CANCEL,
    AdmissionRefused,
    Adopted,
    CancelRequested,
    Delivered,
    Joined,
    QuestionAnswered,
    Record,
    Resumed,
    Returned,
    Spawned,
    decode,
    encode,
    errors_of,
    trace_of,
)
from deputy.core.results import Result
from deputy.core.state import State, apply, is_awaited, may_answer
from deputy.engine.partial_result import late_ending
from deputy.engine.ports import Writing
from deputy.engine.ports.queries import ErrorContext, LoggedErrorRow, ProgressEvent
from deputy.engine.recover import RunStatus, waits_until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from deputy.core.errors import Error
    from deputy.core.events import Event, Requested, RunOpened
    from deputy.core.outcome import Outcome

    T = TypeVar("T")

_RING = 256


class MemoryLease:
    """The right to write the records of one run."""

    def __init__(self, run: str, epoch: int, state: State) -> None:
        self.run = run
        self.epoch = epoch
        self.queue = ""
        self.state = state
        self.trouble: StorageError | None = None
        """Why a record was lost: no later record is written."""


class _Work(NamedTuple):
    do: Callable[[], Any]
    done: asyncio.Future[Any]
    lease: MemoryLease | None
    """The lease of a record that no caller awaits."""


class MemoryDisk:
    """The data that survives a crash."""

    def __init__(self) -> None:
        self.records: dict[str, list[Record]] = {}
        self.log: list[Record] = []
        """The records of all runs, in the order of their commits."""
        self.progress: dict[str, deque[ProgressEvent]] = {}
        self.shown = 0
        """The number of the latest progress event."""
        self.generation = 0
        """Raised by every removal."""
        self.leases: dict[str, tuple[str | None, int]] = {}
        self.inbox: list[list[Any]] = []
        self.alive: set[str] = set()
        self.errors: dict[tuple[str, ...], LoggedErrorRow] = {}
        self._folded: dict[str, tuple[int, State]] = {}

    def state(self, run: str) -> State | None:
        """A run's state, folded from its records."""
        if (records := self.records.get(run)) is None:
            return None
        count, state = self._folded.get(run, (0, State()))
        for record in records[count:]:
            state = apply(state, record)
        self._folded[run] = (len(records), state)
        return state

    def forget(self, runs: Collection[str]) -> None:
        """Remove runs. Positions in the log, and numbers of progress, are then used again."""
        for run in runs:
            self.records.pop(run, None)
            self.leases.pop(run, None)
            self._folded.pop(run, None)
        self.inbox = [message for message in self.inbox if message[0] not in runs]
        self.log = [record for record in self.log if record.run not in runs]
        self.progress = {run: ring for run, ring in self.progress.items() if run not in runs}
        self.shown = max((ring[-1].number for ring in self.progress.values()), default=0)
        self.generation += 1

    def descendants(self, run: str) -> list[State]:
        """All runs below a run, callers first."""
        above = {run}
        below: list[State] = []
        for state in self.states():
            if state.parent in above:
                above.add(state.run)
                below.append(state)
        return below

    def show_progress(self, run: str, at: float, body: bytes) -> None:
        """Keep the latest progress events of a run."""
        self.shown += 1
        self.progress.setdefault(run, deque(maxlen=_RING)).append(ProgressEvent(self.shown, run, at, body))

    def log_error(self, at: float, run: str, error: Error, trace: str) -> None:
        """Add an error to the error log, or raise its count."""
        code = "" if error.code is UNSET else error.code
        key = (error.type, code, error.message)
        known = self.errors.get(key)
        self.errors[key] = LoggedErrorRow(
            id=f"err_{len(self.errors) if known is None else known.id.removeprefix('err_')}",
            first_at=at if known is None else known.first_at,
            last_at=at,
            count=1 if known is None else known.count + 1,
            severity="warning" if error.recoverable else "error",
            type=error.type,
            code=code,
            message=error.message,
            recommendation=error.recommendation,
            context=ErrorContext(session_id=run),
            trace=trace or ("" if known is None else known.trace),
        )

    def states(self) -> list[State]:
        """The state of every run, oldest first."""
        return [state for run in self.records if (state := self.state(run)) is not None]


class MemoryJournal:
    """The journal of one process on a disk. After `crash` it writes and answers nothing."""

    def __init__(
        self,
        disk: MemoryDisk,
        owner: str,
        clock: Callable[[], float],
        *,
        wall: Callable[[], float] | None = None,
        latency: Callable[[], float] = lambda: 0.0,
        trouble: Callable[[], StorageError | None] = lambda: None,
    ) -> None:
        """A commit takes `latency`, and fails as a whole when there is `trouble`."""
        self._disk = disk
        self._owner = owner
        self._clock = clock
        self._wall = wall or clock
        self._latency = latency
        self._trouble = trouble
        self._pending: list[_Work] = []
        self._is_dead = False
        disk.alive.add(owner)

    def crash(self) -> None:
        """Lose what is not durable yet; its callers wait for ever."""
        self._is_dead = True
        self._pending.clear()
        self._disk.alive.discard(self._owner)

    async def close(self) -> None:
        """Write what is pending and release all leases."""
        self._flush()
        self._disk.alive.discard(self._owner)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def begin(self, run: str, event: RunOpened | Requested) -> MemoryLease | None:
        """Create a run with its first record and take its lease."""
        return await self._commit(lambda: self._begin(run, event))

    async def acquire(self, run: str) -> MemoryLease:
        """Take the lease of a run that no process holds."""

        def do() -> MemoryLease:
            state = self._disk.state(run)
            if state is None:
                raise UnknownRun(run)
            before = self._disk.leases.get(run, (None, 0))[0]
            lease = self._grant(run, state)
            if before not in (None, self._owner) and state.is_live:
                self._append(lease, f"adopted:{lease.epoch}", Adopted(owner=self._owner, previous_owner=before))
            return lease

        return await self._commit(do)

    async def release(self, lease: MemoryLease) -> None:
        """Release a lease."""
        await self._commit(lambda: self._release(lease))

    async def append(self, lease: MemoryLease, key: str, event: Event) -> Record:
        """Add a record, durable when this returns."""
        return await self._commit(lambda: self._append(lease, key, event))

    def append_soon(self, lease: MemoryLease, key: str, event: Event) -> Writing:
        """Add a record under a new key without waiting."""
        clock, written = self._clock(), decode(encode(event))
        future = self._submit(lambda: self._append(lease, key, event, clock), lease)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return Writing(written, clock)

    def append_begun(self, lease: MemoryLease, key: str, event: Event) -> None:
        """The same for a record that no decision depends on."""
        self.append_soon(lease, key, event)

    async def wait_durable(self, lease: MemoryLease) -> None:
        """Wait until all records of a run are durable; raises when one was lost."""
        await self._commit(lambda: self._fence(lease))

    async def spawn(self, lease: MemoryLease, key: str, child: str, event: Requested) -> MemoryLease | None:
        """Record a spawn and create the child, in one transaction."""

        def do() -> MemoryLease | None:
            self._fence(lease)
            if self._find(lease.run, key) is not None:
                return None
            if (born := self._begin(child, event)) is not None:
                self._append(lease, key, Spawned(child=child))
            return born

        return await self._commit(do)

    async def finish(self, lease: MemoryLease, key: str, event: Event) -> Record:
        """Record the end of a run and release its lease, in one transaction."""

        def do() -> Record:
            record = self._append(lease, key, event)
            self._release(lease)
            return record

        return await self._commit(do)

    async def expire(self, seen: State) -> bool:
        """End an overdue run, even if another process holds its lease; whether this ended it."""

        def do() -> bool:
            state = self._disk.state(seen.run)
            if state is None or not state.is_live or (state.round, state.lineage) != (seen.round, seen.lineage):
                return False
            events = [record.event for record in self._disk.records[seen.run]]
            below = self._disk.descendants(seen.run)
            children = [child for child in below if child.parent == seen.run and not child.is_live]
            results = [Result(label=child.label, outcome=self._outcome(child)) for child in children]
            ending = Returned(outcome=late_ending(state, events, results, below, self._clock()))
            lease = self._grant(seen.run, state, is_forced=True)
            self._append(lease, f"returned:{state.round}", ending)
            self._release(lease)
            return True

        return await self._commit(do)

    async def join(self, lease: MemoryLease, key: str, child: State) -> Record:
        """Record the join here and the delivery with the child, in one transaction."""

        def do() -> Record:
            self._fence(lease)
            self._deliver(child.run, lease.run)
            joined = Joined(child=child.run, round=child.round, waited=child.waited, waited_until=child.waited_until)
            return self._append(lease, key, joined)

        return await self._commit(do)

    async def receive_message(self, lease: MemoryLease, key: str, topic: str) -> Record | None:
        """Turn the oldest message that answers this wait into a record."""

        def do() -> Record | None:
            self._fence(lease)
            found = self._find(lease.run, key)
            if found is not None:
                return found
            for message in list(self._disk.inbox):
                run, of, sent, body, is_taken = message
                if run != lease.run or of != topic or is_taken:
                    continue
                if not may_answer(sent, key) and not is_awaited(sent, lease.state):
                    self._disk.inbox.remove(message)
                elif may_answer(sent, key):
                    message[4] = True
                    said = json.decode(body)
                    event = (
                        CancelRequested(reason=said if isinstance(said, str) else "")
                        if topic == CANCEL
                        else QuestionAnswered(topic=topic, body=Raw(body))
                    )
                    return self._append(lease, key, event)
            return None

        return await self._commit(do)

    async def send(self, run: str, topic: str, key: str, body: bytes) -> bool:
        """Send a run a message, once per key; False when another message has this key."""

        def do() -> bool:
            if run not in self._disk.records:
                raise UnknownRun(run)
            for message in self._disk.inbox:
                if message[0] == run and message[2] == key:
                    return message[3] == body
            self._disk.inbox.append([run, topic, key, body, False])
            return True

        return await self._commit(do)

    async def deliver(self, run: str, to: str) -> None:
        """Record that a result was delivered."""
        await self._commit(lambda: self._deliver(run, to))

    async def purge(self, run: str) -> None:
        """Remove a run and its descendants."""
        below = [state.run for state in await self.descendants(run)]
        await self._commit(lambda: self._disk.forget((run, *below)))

    def show_progress(self, run: str, body: bytes) -> None:
        """Show progress to watchers."""
        self._disk.show_progress(run, self._clock(), body)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def state(self, run: str) -> State | None:
        """The state of a run."""
        return await self._read(lambda: self._disk.state(run))

    async def known(self, runs: Sequence[str]) -> set[str]:
        """Which of these are runs."""
        return await self._read(lambda: self._disk.records.keys() & set(runs))

    async def unfinished(self, active: Collection[str] = ()) -> Sequence[RunStatus]:
        """The runs that are live or undelivered, without the active runs of this process."""
        return await self._read(
            lambda: [
                RunStatus(state=state, is_orphaned=self._is_orphaned(state.run))
                for state in self._disk.states()
                if (state.is_live or not state.is_delivered)
                and not (state.run in active and self._disk.leases.get(state.run, (None, 0))[0] == self._owner)
            ]
        )

    async def due(self, active: Collection[str], parked: Collection[str], now: float) -> Sequence[RunStatus]:
        """The same, without what waits for a person until later, and with the parked runs that have ended."""
        found = [one for one in await self.unfinished(active) if (waits_until(one.state) or 0) <= now]
        gone = [self._disk.state(run) for run in set(parked) - {one.state.run for one in found}]
        ended = [RunStatus(state=state, is_orphaned=True) for state in gone if state is not None and not state.is_live]
        return [*found, *ended]

    async def descendants(self, run: str) -> Sequence[State]:
        """All runs below a run, callers first."""
        return await self._read(lambda: self._disk.descendants(run))

    async def records(self, run: str, after: int = 0) -> Sequence[Record]:
        """The records of a run."""
        return await self._read(lambda: [one for one in self._disk.records.get(run, ()) if one.seq > after])

    async def get(self, run: str, key: str) -> Record | None:
        """One record of a run."""
        return await self._read(lambda: self._find(run, key))

    async def addressed(self) -> Sequence[tuple[str, str]]:
        """The live runs with untaken messages and their topics, except runs that another process holds."""

        def do() -> list[tuple[str, str]]:
            return [
                (run, topic)
                for run, topic, _, _, is_taken in self._disk.inbox
                if not is_taken and (self._is_orphaned(run) or self._disk.leases[run][0] == self._owner)
            ]

        return await self._read(do)

    async def changes(self) -> int:
        """A number that changes when any process has written."""
        return await self._read(lambda: sum(map(len, self._disk.records.values())) + len(self._disk.inbox))

    # --- how ----------------------------------------------------------------------------------------------------------

    async def _read(self, do: Callable[[], T]) -> T:
        await self._breathe()
        return do()

    async def _breathe(self) -> None:
        await asyncio.sleep(0)
        if self._is_dead:
            await asyncio.get_running_loop().create_future()

    async def _commit(self, do: Callable[[], T]) -> T:
        return await self._submit(do)

    def _submit(self, do: Callable[[], T], lease: MemoryLease | None = None) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._is_dead:
            return future
        if not self._pending:
            loop.call_later(self._latency(), self._flush)
        self._pending.append(_Work(do, future, lease))
        return future

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        trouble = self._trouble() if pending else None
        for do, future, lease in pending:
            try:
                if trouble is not None:
                    if lease is not None:
                        lease.trouble = trouble
                    raise trouble
                result = do()
            except (LeaseHeld, LeaseLost, UnknownRun, StorageError) as error:
                if not future.done():
                    future.set_exception(error)
                continue
            if not future.done():
                future.set_result(result)

    def _begin(self, run: str, event: RunOpened | Requested) -> MemoryLease | None:
        if run in self._disk.records:
            return None
        self._disk.records[run] = []
        lease = self._grant(run, State())
        self._append(lease, "requested", event)
        return lease

    def _outcome(self, state: State) -> Outcome:
        found = self._find(state.run, f"returned:{state.round}")
        if found is None or not isinstance(found.event, Returned | AdmissionRefused):
            raise UnknownRun(state.run)
        return found.event.outcome

    def _grant(self, run: str, state: State, *, is_forced: bool = False) -> MemoryLease:
        owner, epoch = self._disk.leases.get(run, (None, 0))
        if not is_forced and owner is not None and owner != self._owner and owner in self._disk.alive:
            raise LeaseHeld(run, owner)
        self._disk.leases[run] = (self._owner, epoch + 1)
        return MemoryLease(run, epoch + 1, state)

    def _fence(self, lease: MemoryLease) -> None:
        if lease.trouble is not None:
            raise lease.trouble
        if self._disk.leases.get(lease.run) != (self._owner, lease.epoch):
            raise LeaseLost(lease.run, lease.epoch)

    def _release(self, lease: MemoryLease) -> None:
        self._fence(lease)
        self._disk.leases[lease.run] = (None, lease.epoch)

    def _append(self, lease: MemoryLease, key: str, event: Event, clock: float | None = None) -> Record:
        self._fence(lease)
        found = self._find(lease.run, key)
        if found is not None:
            return found
        # Through JSON and back, so that a reader gets what a real disk would give.
        written = decode(encode(event))
        record = Record(
            run=lease.run,
            seq=lease.state.seq + 1,
            key=key,
            at=self._wall(),
            clock=self._clock() if clock is None else clock,
            event=written,
        )
        self._disk.records[lease.run].append(record)
        self._disk.log.append(record)
        lease.state = apply(lease.state, record)
        for error in errors_of(event):
            self._disk.log_error(record.at, lease.run, error, trace_of(event))
        if isinstance(event, Resumed):
            # Messages to an earlier round do not count for this one.
            for message in self._disk.inbox:
                message[4] = message[4] or message[0] == lease.run
        return record

    def _deliver(self, run: str, to: str) -> None:
        state = self._disk.state(run)
        if state is None:
            raise UnknownRun(run)
        if not state.is_live and not state.is_delivered:
            lease = self._grant(run, state)
            self._append(lease, f"delivered:{state.round}", Delivered(to=to))
            self._release(lease)

    def _find(self, run: str, key: str) -> Record | None:
        return next((record for record in self._disk.records.get(run, ()) if record.key == key), None)

    def _is_orphaned(self, run: str) -> bool:
        owner = self._disk.leases.get(run, (None, 0))[0]
        return owner is None or owner not in self._disk.alive
