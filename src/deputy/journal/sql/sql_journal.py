"""The Journal port over a store of SQL tables."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Raw

from deputy.core.errors import Error, StorageCorrupt, StorageError, StorageFailed, UnknownRun, UsageError
from deputy.core.events import Adopted, QuestionAnswered, decode, encode, written
from deputy.engine.ports import Writing
from deputy.engine.ports.queries import DamagedRecord, ErrorContext
from deputy.journal import error_log, expire, registry, retention, transcript
from deputy.journal.batched_calls import BatchedCalls
from deputy.journal.sql.group_writer import CLOSE_SECONDS, bounded_wait
from deputy.journal.sql.transaction import Transaction
from deputy.processes.outgoing import process_redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from deputy.core.events import Event, Record, Requested, RunOpened
    from deputy.core.outcome import Outcome
    from deputy.core.redaction import Redactor
    from deputy.core.state import State
    from deputy.engine.recover import RunStatus
    from deputy.journal.clock import Clock
    from deputy.journal.shared_rate_limit import HeldUntil
    from deputy.journal.sql.group_writer import GroupWriter
    from deputy.journal.sql.sql_queries import SqlQueries
    from deputy.journal.sql.transaction import SqlLease

    A = TypeVar("A")
    T = TypeVar("T")
    E = TypeVar("E", bound=Event)


_ID_LENGTH = 200
_FILES_AT_ONCE = 8
_CALM_SECONDS, _TRANSCRIPT_SECONDS = 0.5, 3.0
"""Transcripts are written after this long without an ended run, and after this long at the latest."""


class SqlJournal:
    """The journal of this process: one writer thread with group commit, and queries that never wait.

    A store gives the writer, and overrides how queries are opened and how changes are noticed.
    """

    def __init__(
        self,
        writer: GroupWriter,
        folder: Path,
        *,
        clock: Clock,
        mask: Callable[[bytes], bytes],
    ) -> None:
        """`mask` hides this process's provider keys in records and progress. `folder` is the home of transcripts."""
        self.folder = folder
        self.location = writer.location
        self.owner = writer.owner
        self._mask = mask
        # The monotonic clock restarts at boot, so rows of an earlier boot have no meaning.
        self.rate_limit_scope = f"{self.owner.partition('/')[0]}/"
        """The prefix of rate limits that share a clock."""
        self._writer = writer
        self.clock = clock
        self._moment = clock.moment
        self._open_queries: list[SqlQueries] = []
        self._pool = ThreadPoolExecutor(2, "deputy-journal-reader")
        # Syncing many files in parallel takes as long as syncing one.
        self._files = ThreadPoolExecutor(_FILES_AT_ONCE, "deputy-journal-files")
        self._composing = threading.Lock()
        self._to_transcribe: deque[str] = deque()
        self._transcribing: set[asyncio.Future[None]] = set()
        self._transcribing_soon: asyncio.TimerHandle | None = None
        self._ended_at = 0.0
        self._states: BatchedCalls[str, State | None] = BatchedCalls(self._batched(_state_of))
        self._records: BatchedCalls[tuple[str, str], Record | DamagedRecord | None] = BatchedCalls(
            self._batched(_record_of)
        )
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def abandon(self) -> None:
        """Stop without writing or releasing anything, as after a kill; for tests."""
        await self._writer.close(orderly=False)

    async def close(self) -> None:
        """Write what is pending, release all leases, and close the store."""
        await self._close_readers()
        await self._writer.close()

    async def _close_readers(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while self._to_transcribe or self._transcribing:
                    self._transcribe()
                    await asyncio.wait(self._transcribing)
        # Readers first: the writer closes last and checkpoints the log.
        self._is_closed = True
        for pool in (self._files, self._pool):
            await bounded_wait(pool.shutdown)
        while self._open_queries:
            self._open_queries.pop().close()

    # --- writing ------------------------------------------------------------------------------------------------------

    async def transact(self, do: Callable[[Transaction], T], *runs: str, trees: tuple[str, ...] = ()) -> T:
        """Run a function in the next transaction, with these leases and budgets, and wait until it is durable."""
        return await self._writer.submit(do, runs=runs, trees=trees)

    def transact_soon(
        self, do: Callable[[Transaction], T], *runs: str, trees: tuple[str, ...] = ()
    ) -> asyncio.Future[T]:
        """Run a function in the next transaction without waiting; the caller must handle the future's error."""
        return self._writer.submit(do, runs=runs, trees=trees)

    async def begin(self, run: str, event: RunOpened | Requested) -> SqlLease | None:
        """Make a run with its first record, and take its lease; None when there is such a run already."""
        check_id(run)
        at, (masked, body) = self._moment(), self._written(event)
        return await self._writer.submit(Transaction.begin, run, at, masked, body)

    async def acquire(self, run: str) -> SqlLease:
        """Take the lease of a run that is orphaned or has ended."""
        state = await self.state(run)
        if state is None:
            raise UnknownRun(run)

        def do(tx: Transaction) -> SqlLease:
            holder = tx.holder(run)
            lease = tx.grant(run, state)
            tx.catch_up(lease)
            if holder is not None and holder.owner not in ("", self.owner) and lease.state.is_live:
                adopted = Adopted(owner=self.owner, previous_owner=holder.owner)
                tx.append(lease, f"adopted:{lease.epoch}", self._moment(), adopted, encode(adopted))
            return lease

        return await self.transact(do, run)

    async def release(self, lease: SqlLease) -> None:
        """Release a lease."""
        await self._writer.submit(Transaction.release, lease)

    async def append(self, lease: SqlLease, key: str, event: Event) -> Record:
        """Add a record and wait until it is durable."""
        at, (masked, body) = self._moment(), self._written(event)
        return await self._writer.submit(Transaction.append, lease, key, at, masked, body)

    def append_soon(self, lease: SqlLease, key: str, event: Event) -> Writing:
        """Add a record under a new key without waiting; a later record is never durable before it."""
        at, (masked, body) = self._moment(), self._written(event)
        self._writer.submit_for(lease, Transaction.append, lease, key, at, masked, body)
        return Writing(masked, at.clock)

    def append_begun(self, lease: SqlLease, key: str, event: Event) -> None:
        """The same for a record that no decision depends on."""
        at, (masked, body) = self._moment(), self._written(event)
        self._writer.submit_for(lease, Transaction.mark, lease, key, at, masked, body)

    async def wait_durable(self, lease: SqlLease) -> None:
        """Wait until all records of a run are durable; raises when one was lost."""
        await self._writer.submit(Transaction.fence, lease)

    def _written(self, event: E) -> tuple[E, bytes]:
        """An event and its JSON as they are stored, without this process's provider keys."""
        event, body = written(event)
        masked = self._mask(body)
        return (event, body) if masked == body else (cast("E", decode(masked)), masked)

    async def spawn(self, lease: SqlLease, key: str, child: str, event: Requested) -> SqlLease | None:
        """Record a spawn and create the child in one transaction; None when that was done before."""
        check_id(child)
        at, (masked, body) = self._moment(), self._written(event)
        return await self._writer.submit(Transaction.spawn, lease, key, child, at, masked, body)

    async def join(self, lease: SqlLease, key: str, child: State) -> Record:
        """Record the join here and the delivery with the child, in one transaction."""
        at = self._moment()
        return await self._writer.submit(Transaction.join, lease, key, at, child, runs=(child.run,))

    async def finish(self, lease: SqlLease, key: str, event: Event) -> Record:
        """Record the end of a run and release its lease, in one transaction."""
        at, (masked, body) = self._moment(), self._written(event)
        parent = lease.state.parent if lease.queue else None
        above = () if parent is None else (parent,)
        record = await self._writer.submit(Transaction.finish, lease, key, at, masked, body, runs=above)
        self._write_transcript_soon(lease.run)
        return record

    async def expire(self, seen: State) -> bool:
        """End an overdue run in one transaction, even if another process holds its lease; whether this ended it."""
        at = self._moment()
        runs = (seen.run,) if seen.parent is None else (seen.run, seen.parent)
        is_ended = await self.transact(lambda tx: expire.expire(tx, seen, at), *runs)
        if is_ended:
            self._write_transcript_soon(seen.run)
        return is_ended

    def _write_transcript_soon(self, run: str) -> None:
        """Write a transcript later; only `close` waits for it, because it can be made again from the records."""
        self._to_transcribe.append(run)
        self._ended_at = asyncio.get_running_loop().time()
        if self._transcribing_soon is None:
            self._wait_for_calm(self._ended_at)

    def _wait_for_calm(self, since: float) -> None:
        """Delay transcripts while many runs end at once, but not for long."""
        loop = asyncio.get_running_loop()
        calm_at = min(self._ended_at + _CALM_SECONDS, since + _TRANSCRIPT_SECONDS)
        if calm_at <= loop.time():
            self._transcribe()
        else:
            self._transcribing_soon = loop.call_at(calm_at, self._wait_for_calm, since)

    def _transcribe(self) -> None:
        """Write all pending transcripts in a few threads."""

        def write() -> None:
            redactor = process_redactor()
            while self._to_transcribe:
                with suppress(IndexError):
                    self._write_transcript(self._to_transcribe.popleft(), redactor, loop)

        def end(done: asyncio.Future[None]) -> None:
            self._transcribing.discard(done)
            _receive(done)

        if self._transcribing_soon is not None:
            self._transcribing_soon.cancel()
            self._transcribing_soon = None
        loop = asyncio.get_running_loop()
        for _ in range(0 if self._is_closed else min(len(self._to_transcribe), _FILES_AT_ONCE)):
            writing = loop.run_in_executor(self._files, write)
            self._transcribing.add(writing)
            writing.add_done_callback(end)

    def _write_transcript(self, run: str, redactor: Redactor, loop: asyncio.AbstractEventLoop) -> None:
        try:
            # Composing needs the GIL, so one thread composes at a time; writing mostly waits for the disk.
            with self._composing:
                made = self._read(lambda queries: transcript.of_ended(queries, run))
                file = None if made is None else transcript.file_of(self.folder, made, redactor)
            if file is not None:
                transcript.write_file(*file)
        except StorageError as error:
            noted = Error(type="storage", message=str(error), recoverable=True, recommendation=error.remedy)
            loop.call_soon_threadsafe(self._log_soon, run, noted)

    def _log_soon(self, run: str, error: Error) -> None:
        context, at = ErrorContext(session_id=run), self._moment()
        self._writer.submit(lambda tx: error_log.write(tx.tables, error, at.at, context)).add_done_callback(_receive)

    async def receive_message(self, lease: SqlLease, key: str, topic: str) -> Record | None:
        """Turn the oldest message that answers this wait into a record, in one transaction; None when there is none."""
        at = self._moment()
        return await self._writer.submit(Transaction.receive_message, lease, key, at, topic)

    async def send(self, run: str, topic: str, key: str, body: bytes) -> bool:
        """Send a run a message, once per key; False when another message has this key."""
        if "\0" in run:
            # No id has one, and Postgres cannot even look for it.
            raise UnknownRun(run)
        written(QuestionAnswered(topic=topic, body=Raw(body)))
        masked = self._mask(body)
        return await self.transact(lambda tx: tx.send(run, topic, key, masked), run)

    async def deliver(self, run: str, to: str) -> None:
        """Record that a result was delivered."""
        at, state = self._moment(), await self.state(run)
        if state is None:
            raise UnknownRun(run)
        await self.transact(lambda tx: tx.deliver(run, at, to, state), run)

    async def purge(self, run: str) -> None:
        """Remove a run and its descendants, with their files."""
        runs = [run, *(state.run for state in await self.descendants(run))]

        def do(tx: Transaction) -> None:
            tx.has_removed = True
            retention.remove(tx.tables, runs)

        await self.transact(do, *runs)
        await self.read(lambda _: retention.remove_files(self.folder, runs))

    def show_progress(self, run: str, body: bytes) -> None:
        """Show progress to watchers, of other processes too."""
        self._writer.show_progress(run, self.clock.now(), body)

    def rate_limit_shift(self) -> float:
        """What the clock of the rate limits adds to the monotonic one."""
        return 0.0

    @property
    def rate_limits(self) -> dict[str, HeldUntil]:
        """The held-back provider accounts, as of the last commit."""
        return self._writer.rate_limits

    # --- reading ------------------------------------------------------------------------------------------------------

    async def read(self, do: Callable[[SqlQueries], T]) -> T:
        """Run a function on a queries in a thread."""
        return await self._read_soon(do)

    def _read_soon(self, do: Callable[[SqlQueries], T]) -> asyncio.Future[T]:
        if self._is_closed:
            raise StorageFailed(self.location, "this process has closed it", "Open it again.")
        return asyncio.get_running_loop().run_in_executor(self._pool, self._read, do)

    async def state(self, run: str) -> State | None:
        """Where a run stands."""
        return await self._states.ask(run)

    def _batched(
        self, find: Callable[[SqlQueries, A], T]
    ) -> Callable[[Sequence[A]], asyncio.Future[list[T | BaseException]]]:
        """Read for many arguments in one thread. Damage concerns one of them; any other error concerns all."""

        def one(queries: SqlQueries, argument: A) -> T | BaseException:
            try:
                return find(queries, argument)
            except StorageCorrupt as error:
                return error

        return lambda arguments: self._read_soon(lambda queries: [one(queries, argument) for argument in arguments])

    async def known(self, runs: Sequence[str]) -> set[str]:
        """Which of these are runs."""
        return await self.read(lambda queries: {run for run in runs if queries.knows(run)})

    async def unfinished(self, active: Collection[str] = ()) -> Sequence[RunStatus]:
        """The runs that are live or undelivered, and whether a process holds them; no `active` run of this process."""

        def find(queries: SqlQueries) -> list[RunStatus]:
            states = queries.unsettled_besides(active, self.owner)
            return registry.statuses(queries, states) if states else []

        return await self.read(find)

    async def due(self, active: Collection[str], parked: Collection[str], now: float) -> Sequence[RunStatus]:
        """The unfinished runs on which a process may have to act now, and the `parked` ones that have ended."""

        def find(queries: SqlQueries) -> list[RunStatus]:
            states = queries.due(active, self.owner, parked, now)
            return registry.statuses(queries, states) if states else []

        return await self.read(find)

    async def descendants(self, run: str) -> Sequence[State]:
        """All runs below a run, oldest first."""
        return await self.read(lambda queries: queries.descendants(run))

    async def records(self, run: str, after: int = 0) -> Sequence[Record]:
        """The records of a run; a damaged one is a StorageCorrupt."""
        return await self.read(lambda queries: [self._whole(record) for record in queries.records(run, after)])

    async def get(self, run: str, key: str) -> Record | None:
        """One record of a run; a damaged one is a StorageCorrupt."""
        record = await self._records.ask((run, key))
        return None if record is None else self._whole(record)

    async def outcomes(self, runs: Sequence[str]) -> dict[str, Outcome]:
        """The outcomes of those of these runs that have ended."""
        return await self.read(lambda queries: registry.outcomes(queries, runs))

    async def addressed(self) -> Sequence[tuple[str, str]]:
        """The live runs with untaken messages and their topics, except runs that another process holds."""
        return await self.read(self._addressed)

    def _addressed(self, queries: SqlQueries) -> list[tuple[str, str]]:
        addressed = queries.addressed()
        holders = queries.holders([run for run, _ in addressed]) if addressed else {}
        return [
            (run, topic)
            for run, topic in addressed
            if run not in holders or holders[run].owner == self.owner or holders[run].is_orphaned
        ]

    async def changes(self) -> int:
        """A number that changes when any process, this one included, has written."""
        raise NotImplementedError

    def _read(self, do: Callable[[SqlQueries], T]) -> T:
        queries = self._open_queries.pop() if self._open_queries else self._open()
        try:
            return do(queries)
        finally:
            self._open_queries.append(queries)

    def _open(self) -> SqlQueries:
        """Open queries for one thread."""
        raise NotImplementedError

    def _whole(self, record: Record | DamagedRecord) -> Record:
        if isinstance(record, DamagedRecord):
            raise StorageCorrupt(self.location, f"{record.where}: {record.what}")
        return record


def _state_of(queries: SqlQueries, run: str) -> State | None:
    return queries.state(run)


def _record_of(queries: SqlQueries, where: tuple[str, str]) -> Record | DamagedRecord | None:
    return queries.get(*where)


def _receive(done: asyncio.Future[Any]) -> None:
    """Mark a future's exception as retrieved."""
    if not done.cancelled():
        done.exception()


def check_id(run: str) -> None:
    """Refuse an id that cannot name a run."""
    # Ids are only compared, but must be printable and short.
    if not run or len(run) > _ID_LENGTH or not run.isprintable():
        raise UsageError("session_id", run, f"an id is 1 to {_ID_LENGTH} printable characters")
