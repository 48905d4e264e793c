"""The Journal port over one SQLite file."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Raw

from deputy.core.errors import Error, StorageCorrupt, StorageError, StorageFailed, UnknownRun, UsageError
from deputy.core.events import Adopted, QuestionAnswered, decode, encode, written
from deputy.core.events import prime as prime_events
from deputy.core.state import prime as prime_states
from deputy.engine.ports import Writing
from deputy.engine.ports.queries import DamagedRecord, ErrorContext
from deputy.journal import error_log, expire, home, registry, retention, transcript
from deputy.journal.process_identity import ProcessIdentity, this_process
from deputy.journal.sqlite.connection import PATIENCE_SECONDS
from deputy.journal.sqlite.sqlite_queries import STALE_SECONDS, SqliteQueries
from deputy.journal.sqlite.transaction import Transaction
from deputy.journal.sqlite.writer import BEAT_SECONDS, CLOSE_SECONDS, Writer, bounded_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from deputy.core.events import Event, Record, Requested, RunOpened
    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.engine.recover import RunStatus
    from deputy.journal.clock import Clock
    from deputy.journal.shared_rate_limit import HeldUntil
    from deputy.journal.sqlite.connection import Fsync
    from deputy.journal.sqlite.transaction import SqliteLease

    Found = State | BaseException | None
    Asked = tuple[str, asyncio.Future[State | None]]
    T = TypeVar("T")
    E = TypeVar("E", bound=Event)


_ID_LENGTH = 200
_FILES_AT_ONCE = 8
_CALM_SECONDS, _TRANSCRIPT_SECONDS = 0.5, 3.0
"""Transcripts are written after this long without an ended run, and after this long at the latest."""


class SqliteJournal:
    """The journal of this process: one writer thread with group commit, and queriess that never wait.

    `mask` hides this process's provider keys in records and progress.
    """

    def __init__(
        self,
        folder: Path,
        *,
        fsync: Fsync = "group",
        owner: ProcessIdentity | None = None,
        clock: Clock | None = None,
        mask: Callable[[bytes], bytes] = bytes,
        beat_seconds: float = BEAT_SECONDS,
        stale_seconds: float = STALE_SECONDS,
        max_wait_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.folder = folder
        self.path = folder / home.JOURNAL
        self.owner = (this_process() if owner is None else owner).name
        self._mask = mask
        self._stale_seconds = stale_seconds
        # Before any thread starts.
        prime_events()
        prime_states()
        self._writer = Writer(
            folder,
            fsync=fsync,
            owner=self.owner,
            clock=clock,
            mask=mask,
            beat_seconds=beat_seconds,
            stale_seconds=stale_seconds,
            max_wait_seconds=max_wait_seconds,
        )
        self.clock = self._writer.clock
        self._moment = self.clock.moment
        self._open_queries: list[SqliteQueries] = []
        self._pool = ThreadPoolExecutor(2, "deputy-journal-reader")
        # Syncing many files in parallel takes as long as syncing one.
        self._files = ThreadPoolExecutor(_FILES_AT_ONCE, "deputy-journal-files")
        self._composing = threading.Lock()
        self._to_transcribe: deque[str] = deque()
        self._transcribing: set[asyncio.Future[None]] = set()
        self._transcribing_soon: asyncio.TimerHandle | None = None
        self._ended_at = 0.0
        self._watcher: SqliteQueries | None = None
        self._states = BatchedReads(self._look_up)
        self._is_closed = False

    async def __aenter__(self) -> SqliteJournal:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def abandon(self) -> None:
        """Stop without writing or releasing anything, as after a kill; for tests."""
        await self._writer.close(orderly=False)

    async def close(self) -> None:
        """Write what is pending, release all leases, and close the file."""
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
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        await self._writer.close()

    # --- writing ------------------------------------------------------------------------------------------------------

    async def transact(self, do: Callable[[Transaction], T]) -> T:
        """Run a function in the next transaction and wait until it is durable."""
        return await self._writer.submit(do)

    def transact_soon(self, do: Callable[[Transaction], T]) -> asyncio.Future[T]:
        """Run a function in the next transaction without waiting; the caller must handle the future's error."""
        return self._writer.submit(do)

    async def begin(self, run: str, event: RunOpened | Requested) -> SqliteLease | None:
        """Make a run with its first record, and take its lease; None when there is such a run already."""
        _check_id(run)
        at, (masked, body) = self._moment(), self._written(event)
        return await self.transact(lambda tx: tx.begin(run, at, masked, body))

    async def acquire(self, run: str) -> SqliteLease:
        """Take the lease of a run that is orphaned or has ended."""
        state = await self.state(run)
        if state is None:
            raise UnknownRun(run)

        def do(tx: Transaction) -> SqliteLease:
            holder = tx.holder(run)
            lease = tx.grant(run, state)
            tx.catch_up(lease)
            if holder is not None and holder.owner not in ("", self.owner) and lease.state.is_live:
                adopted = Adopted(owner=self.owner, previous_owner=holder.owner)
                tx.append(lease, f"adopted:{lease.epoch}", self._moment(), adopted, encode(adopted))
            return lease

        return await self.transact(do)

    async def release(self, lease: SqliteLease) -> None:
        """Release a lease."""
        await self.transact(lambda tx: tx.release(lease))

    async def append(self, lease: SqliteLease, key: str, event: Event) -> Record:
        """Add a record and wait until it is durable."""
        at, (masked, body) = self._moment(), self._written(event)
        return await self._writer.submit(Transaction.append, lease, key, at, masked, body)

    def append_soon(self, lease: SqliteLease, key: str, event: Event) -> Writing:
        """Add a record under a new key without waiting; a later record is never durable before it."""
        at, (masked, body) = self._moment(), self._written(event)
        self._writer.submit_for(lease, Transaction.append, lease, key, at, masked, body)
        return Writing(masked, at.clock)

    def append_begun(self, lease: SqliteLease, key: str, event: Event) -> None:
        """The same for a record that no decision depends on."""
        at, (masked, body) = self._moment(), self._written(event)
        self._writer.submit_for(lease, Transaction.mark, lease, key, at, masked, body)

    async def wait_durable(self, lease: SqliteLease) -> None:
        """Wait until all records of a run are durable; raises when one was lost."""
        await self._writer.submit(Transaction.fence, lease)

    def _written(self, event: E) -> tuple[E, bytes]:
        """An event and its JSON as they are stored, without this process's provider keys."""
        event, body = written(event)
        masked = self._mask(body)
        return (event, body) if masked == body else (cast("E", decode(masked)), masked)

    async def spawn(self, lease: SqliteLease, key: str, child: str, event: Requested) -> SqliteLease | None:
        """Record a spawn and create the child in one transaction; None when that was done before."""
        _check_id(child)
        at, (masked, body) = self._moment(), self._written(event)
        return await self._writer.submit(Transaction.spawn, lease, key, child, at, masked, body)

    async def join(self, lease: SqliteLease, key: str, child: State) -> Record:
        """Record the join here and the delivery with the child, in one transaction."""
        at = self._moment()
        return await self.transact(lambda tx: tx.join(lease, key, at, child))

    async def finish(self, lease: SqliteLease, key: str, event: Event) -> Record:
        """Record the end of a run and release its lease, in one transaction."""
        at, (masked, body) = self._moment(), self._written(event)

        def do(tx: Transaction) -> Record:
            record = tx.append(lease, key, at, masked, body)
            tx.release(lease)
            return record

        record = await self.transact(do)
        self._write_transcript_soon(lease.run)
        return record

    async def expire(self, seen: State) -> bool:
        """End an overdue run in one transaction, even if another process holds its lease; whether this ended it."""
        at = self._moment()
        is_ended = await self.transact(lambda tx: expire.expire(tx, self.path, seen, at))
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
            while self._to_transcribe:
                with suppress(IndexError):
                    self._write_transcript(self._to_transcribe.popleft(), loop)

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

    def _write_transcript(self, run: str, loop: asyncio.AbstractEventLoop) -> None:
        try:
            # Reading needs the GIL, so one thread reads at a time; writing mostly waits for the disk.
            with self._composing:
                made = self._read(lambda queries: transcript.of_ended(queries, run))
            if made is not None:
                transcript.write_transcript(self.folder, made)
        except StorageError as error:
            noted = Error(type="storage", message=str(error), recoverable=True, recommendation=error.remedy)
            loop.call_soon_threadsafe(self._log_soon, run, noted)

    def _log_soon(self, run: str, error: Error) -> None:
        context, at = ErrorContext(session_id=run), self._moment()
        self._writer.submit(lambda tx: error_log.write(tx.connection, error, at.at, context)).add_done_callback(
            _receive
        )

    async def receive_message(self, lease: SqliteLease, key: str, topic: str) -> Record | None:
        """Turn the oldest message that answers this wait into a record, in one transaction; None when there is none."""
        at = self._moment()
        return await self.transact(lambda tx: tx.receive_message(lease, key, at, topic))

    async def send(self, run: str, topic: str, key: str, body: bytes) -> bool:
        """Send a run a message, once per key; False when another message has this key."""
        written(QuestionAnswered(topic=topic, body=Raw(body)))
        masked = self._mask(body)
        return await self.transact(lambda tx: tx.send(run, topic, key, masked))

    async def deliver(self, run: str, to: str) -> None:
        """Record that a result was delivered."""
        at, state = self._moment(), await self.state(run)
        if state is None:
            raise UnknownRun(run)
        await self.transact(lambda tx: tx.deliver(run, at, to, state))

    async def purge(self, run: str) -> None:
        """Remove a run and its descendants, with their files."""
        runs = [run, *(state.run for state in await self.descendants(run))]

        def do(tx: Transaction) -> None:
            tx.has_removed = True
            retention.remove(tx.connection, runs)

        await self.transact(do)
        await self.read(lambda _: retention.remove_files(self.folder, runs))

    def show_progress(self, run: str, body: bytes) -> None:
        """Show progress to watchers, of other processes too."""
        self._writer.show_progress(run, self.clock.now(), body)

    @property
    def rate_limits(self) -> dict[str, HeldUntil]:
        """The held-back provider accounts, as of the last commit."""
        return self._writer.rate_limits

    # --- reading ------------------------------------------------------------------------------------------------------

    async def read(self, do: Callable[[SqliteQueries], T]) -> T:
        """Run a function on a queries in a thread."""
        return await self._read_soon(do)

    def _read_soon(self, do: Callable[[SqliteQueries], T]) -> asyncio.Future[T]:
        if self._is_closed:
            raise StorageFailed(str(self.path), "this process has closed it", "Open it again.")
        return asyncio.get_running_loop().run_in_executor(self._pool, self._read, do)

    async def state(self, run: str) -> State | None:
        """Where a run stands."""
        return await self._states.ask(run)

    def _look_up(self, runs: Sequence[str]) -> asyncio.Future[list[State | BaseException | None]]:
        def find(queries: SqliteQueries) -> list[State | BaseException | None]:
            return [_found(queries, run) for run in runs]

        return self._read_soon(find)

    async def known(self, runs: Sequence[str]) -> set[str]:
        """Which of these are runs."""
        return await self.read(lambda queries: {run for run in runs if queries.knows(run)})

    async def unfinished(self) -> Sequence[RunStatus]:
        """The runs that are live or undelivered, and whether a process holds them."""
        return await self.read(lambda queries: registry.statuses(queries, queries.unsettled()))

    async def descendants(self, run: str) -> Sequence[State]:
        """All runs below a run, oldest first."""
        return await self.read(lambda queries: queries.descendants(run))

    async def records(self, run: str, after: int = 0) -> Sequence[Record]:
        """The records of a run; a damaged one is a StorageCorrupt."""
        return await self.read(lambda queries: [self._whole(record) for record in queries.records(run, after)])

    async def get(self, run: str, key: str) -> Record | None:
        """One record of a run; a damaged one is a StorageCorrupt."""
        record = await self.read(lambda queries: queries.get(run, key))
        return None if record is None else self._whole(record)

    async def outcomes(self, runs: Sequence[str]) -> dict[str, Outcome]:
        """The outcomes of those of these runs that have ended."""
        return await self.read(lambda queries: registry.outcomes(queries, runs))

    async def addressed(self) -> Sequence[tuple[str, str]]:
        """The live runs with untaken messages and their topics, except runs that another process holds."""
        return await self.read(self._addressed)

    def _addressed(self, queries: SqliteQueries) -> list[tuple[str, str]]:
        addressed = queries.addressed()
        holders = queries.holders() if addressed else {}
        return [
            (run, topic)
            for run, topic in addressed
            if run not in holders or holders[run].owner == self.owner or holders[run].is_orphaned
        ]

    async def changes(self) -> int:
        """A number that changes when any process, this one included, has written."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._changes)

    def _changes(self) -> int:
        # The number is only comparable within one connection.
        if self._watcher is None:
            self._watcher = self._open()
        return self._watcher.changes()

    def _read(self, do: Callable[[SqliteQueries], T]) -> T:
        queries = self._open_queries.pop() if self._open_queries else self._open()
        try:
            return do(queries)
        finally:
            self._open_queries.append(queries)

    def _open(self) -> SqliteQueries:
        queries = SqliteQueries.open(self.folder, is_written=True, stale_seconds=self._stale_seconds)
        if queries is None:
            raise StorageFailed(str(self.path), "it was deleted", "Restore the file, or start Deputy again.")
        return queries

    def _whole(self, record: Record | DamagedRecord) -> Record:
        if isinstance(record, DamagedRecord):
            raise StorageCorrupt(str(self.path), f"{record.where}: {record.what}")
        return record


def _found(queries: SqliteQueries, run: str) -> State | BaseException | None:
    """The state of a run, or the error of reading it: the other runs of the batch are not affected."""
    try:
        return queries.state(run)
    except StorageError as error:
        return error


def _receive(done: asyncio.Future[Any]) -> None:
    """Mark a future's exception as retrieved."""
    if not done.cancelled():
        done.exception()


def _check_id(run: str) -> None:
    # Ids are only compared, but must be printable and short.
    if not run or len(run) > _ID_LENGTH or not run.isprintable():
        raise UsageError("session_id", run, f"an id is 1 to {_ID_LENGTH} printable characters")


class BatchedReads:
    """Collects the runs asked for in one tick and reads them together."""

    def __init__(self, read: Callable[[Sequence[str]], asyncio.Future[list[Found]]]) -> None:
        self._read = read
        self._asked: list[Asked] = []

    def ask(self, run: str) -> asyncio.Future[State | None]:
        """The state of a run."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[State | None] = loop.create_future()
        if not self._asked:
            loop.call_soon(self._ask)
        self._asked.append((run, answer))
        return answer

    def _ask(self) -> None:
        asked, self._asked = self._asked, []
        try:
            self._read([run for run, _ in asked]).add_done_callback(partial(_answer, asked))
        except Exception as error:  # noqa: BLE001  the callers get it; else they would wait for ever
            _resolve_all(asked, [error] * len(asked))


def _answer(asked: Sequence[Asked], looked: asyncio.Future[list[Found]]) -> None:
    error = asyncio.CancelledError() if looked.cancelled() else looked.exception()
    _resolve_all(asked, looked.result() if error is None else [error] * len(asked))


def _resolve_all(asked: Sequence[Asked], found: Sequence[Found]) -> None:
    for (_, answer), state in zip(asked, found, strict=True):
        if answer.done():
            continue
        if isinstance(state, BaseException):
            answer.set_exception(state)
        else:
            answer.set_result(state)
