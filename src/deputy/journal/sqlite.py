"""The journal in one SQLite file: one writer thread, group commit, leases that fence every append."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from deputy.core.errors import DeputyError, LeaseHeld, LeaseLost, StorageCorrupt, StorageError, UnknownRun
from deputy.core.events import Adopted, Record, encode, errors_of
from deputy.core.state import State, apply
from deputy.journal import connection as connections
from deputy.journal import errors_log, home
from deputy.journal.owner import Owner, this_process
from deputy.journal.reader import STALE_SECONDS, Holder, Reader
from deputy.journal.rows import (
    ADD_EVENT,
    EVENT_UNDER_KEY,
    EVENTS_AFTER,
    HOLDER,
    Damaged,
    event_row,
    read_event,
    state_row,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from deputy.core.events import Event
    from deputy.journal.connection import Fsync

    T = TypeVar("T")

BEAT_SECONDS = 3.0
_LOOK_SECONDS = 0.25
_BATCH = 512
_RING = 256
"""How many signs of progress are kept per run."""


class Lease:
    """The right to write the records of one run, until another process takes it; and the state they leave."""

    __slots__ = ("epoch", "run", "state")

    def __init__(self, run: str, epoch: int, state: State) -> None:
        self.run = run
        self.epoch = epoch
        self.state = state
        """As of the last commit."""


class _Work(NamedTuple):
    do: Callable[[Transaction], Any]
    done: asyncio.Future[Any] | None


class Transaction:
    """What one commit makes durable: all of it or nothing."""

    def __init__(self, connection: sqlite3.Connection, path: str, owner: str, stale_seconds: float) -> None:
        self.connection = connection
        self.owner = owner
        self.granted: set[str] = set()
        self.released: set[str] = set()
        self._path = path
        self._stale_seconds = stale_seconds
        self._states: dict[Lease, State] = {}
        self._fenced: set[Lease] = set()

    def state(self, lease: Lease) -> State:
        """The state of a run with what this transaction has added to it."""
        return self._states.get(lease, lease.state)

    def fence(self, lease: Lease) -> None:
        """Refuse to go on when the lease has been taken over."""
        if lease in self._fenced:
            return
        query = "SELECT 1 FROM leases WHERE run = ? AND epoch = ? AND owner = ?"
        if self.connection.execute(query, (lease.run, lease.epoch, self.owner)).fetchone() is None:
            raise LeaseLost(lease.run, lease.epoch)
        self._fenced.add(lease)

    def append(self, lease: Lease, key: str, at: float, event: Event, body: bytes) -> Record:
        """Add a record; when the run has one under this key already, that one stands and is returned."""
        self.fence(lease)
        state = self.state(lease)
        record = Record(run=lease.run, seq=state.seq + 1, key=key, at=at, event=event)
        if not self.connection.execute(ADD_EVENT, event_row(record, body)).rowcount:
            return self.existing(lease.run, key)
        state = self._states[lease] = apply(state, record)
        for error in errors_of(event):
            errors_log.write(self.connection, error, at, errors_log.context_of(state))
        return record

    def existing(self, run: str, key: str) -> Record:
        """The record that is there."""
        record = read_event(self.connection.execute(EVENT_UNDER_KEY, (run, key)).fetchone())
        if isinstance(record, Damaged):
            raise StorageCorrupt(self._path, f"{record.where}: {record.what}")
        return record

    def begin(self, run: str, at: float, event: Event, body: bytes) -> Lease | None:
        """Make a run with its first record, and take its lease; None when there is such a run already."""
        if self.connection.execute("SELECT 1 FROM runs WHERE run = ?", (run,)).fetchone() is not None:
            return None
        lease = self.grant(run, State())
        self.append(lease, FIRST, at, event, body)
        return lease

    def grant(self, run: str, state: State) -> Lease:
        """Take the lease of a run that nobody is at work on."""
        holder = self.holder(run)
        if holder is not None and not holder.is_left(time.monotonic(), self._stale_seconds):
            raise LeaseHeld(run, "this process" if holder.owner == self.owner else f"process {holder.owner}")
        epoch = 1 if holder is None else holder.epoch + 1
        self.connection.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", (run, self.owner, epoch))
        self.granted.add(run)
        return Lease(run, epoch, state)

    def holder(self, run: str) -> Holder | None:
        """Who has the lease of a run."""
        row = self.connection.execute(HOLDER, (run,)).fetchone()
        return None if row is None else Holder(owner=row[0] or "", epoch=row[1], beat=row[2])

    def release(self, lease: Lease) -> None:
        """Give a lease up."""
        query = "UPDATE leases SET owner = NULL WHERE run = ? AND epoch = ? AND owner = ?"
        self.connection.execute(query, (lease.run, lease.epoch, self.owner))
        self.released.add(lease.run)
        self._fenced.discard(lease)

    def index(self) -> None:
        """Write the states that this transaction has changed beside the records they follow from."""
        rows = ((lease.run, state) for lease, state in self._states.items())
        self.connection.executemany(
            "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run) DO UPDATE SET"
            " is_live = excluded.is_live, last_at = excluded.last_at, state = excluded.state, sum = excluded.sum",
            [(run, s.parent, _root(s), s.is_live, s.last_at, *state_row(s)) for run, s in rows],
        )

    def settle(self) -> None:
        """After the commit: what was added is so."""
        for lease, state in self._states.items():
            lease.state = state


class SqliteJournal:
    """The journal of this process: appenders wait for durability together, readers never wait."""

    def __init__(
        self,
        folder: Path,
        *,
        fsync: Fsync = "group",
        owner: Owner | None = None,
        clock: Callable[[], float] = time.time,
        beat_seconds: float = BEAT_SECONDS,
        stale_seconds: float = STALE_SECONDS,
        patience_seconds: float = connections.PATIENCE_SECONDS,
    ) -> None:
        self.folder = folder
        self.path = folder / home.JOURNAL
        self.owner = (this_process() if owner is None else owner).name
        self._fsync: Fsync = fsync
        self._clock = clock
        self._beat_seconds = beat_seconds
        self._stale_seconds = stale_seconds
        self._patience = patience_seconds
        self._connection: sqlite3.Connection | None = connections.open_writer(folder, fsync, patience_seconds)
        self._handed: list[_Work] = []
        self._work: deque[_Work] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._progress: dict[str, deque[tuple[int, float, bytes]]] = {}
        self._progressed: dict[str, int] = {}
        self._beat_at: float | None = None
        self._held: set[str] = set()
        self._readers: list[Reader] = []
        self._pool = ThreadPoolExecutor(2, "deputy-journal-reader")
        self._thread = threading.Thread(target=self._write, name="deputy-journal-writer", daemon=True)
        self._thread.start()

    # --- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> SqliteJournal:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Write what is waiting, give up all leases, and let the file go."""
        if self._closing:
            return
        self._hand_over()
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        self._pool.shutdown()
        for reader in self._readers:
            reader.close()

    # --- writing ------------------------------------------------------------------------------------------------------

    async def begin(self, run: str, event: Event) -> Lease | None:
        """Make a run with its first record, and take its lease; None when there is such a run already."""
        at, body = self._clock(), encode(event)
        return await self.transact(lambda tx: tx.begin(run, at, event, body))

    async def acquire(self, run: str) -> Lease:
        """Take the lease of a run that is left, or has ended; records up to now are folded into its state."""
        state = await self.read(lambda reader: reader.fold(run))
        if state is None:
            raise UnknownRun(run)

        def do(tx: Transaction) -> Lease:
            left_by = tx.holder(run)
            lease = tx.grant(run, state)
            # What was written between the fold and the grant.
            for row in tx.connection.execute(EVENTS_AFTER, (run, state.seq, -1)).fetchall():
                record = read_event(row)
                if not isinstance(record, Damaged):
                    lease.state = apply(lease.state, record)
            if left_by is not None and left_by.owner and lease.state.is_live:
                adopted = Adopted(owner=self.owner, left_by=left_by.owner)
                tx.append(lease, f"adopted:{lease.epoch}", self._clock(), adopted, encode(adopted))
            return lease

        return await self.transact(do)

    async def release(self, lease: Lease) -> None:
        """Give a lease up, so that anybody may take it."""
        await self.transact(lambda tx: tx.release(lease))

    async def append(self, lease: Lease, key: str, event: Event) -> Record:
        """Add a record and wait until it is durable."""
        return await self.transact(self._appending(lease, key, event))

    def append_soon(self, lease: Lease, key: str, event: Event) -> asyncio.Future[Record]:
        """Add a record without waiting; one that is appended and awaited later is never durable before it."""
        return self.submit(self._appending(lease, key, event))

    def _appending(self, lease: Lease, key: str, event: Event) -> Callable[[Transaction], Record]:
        at, body = self._clock(), encode(event)
        return lambda tx: tx.append(lease, key, at, event, body)

    async def send(self, run: str, topic: str, key: str, body: bytes) -> None:
        """Leave a message for a run, once per key; whoever is at work on it takes it up."""

        def do(tx: Transaction) -> None:
            if tx.connection.execute("SELECT 1 FROM runs WHERE run = ?", (run,)).fetchone() is None:
                raise UnknownRun(run)
            query = "INSERT INTO inbox (run, topic, key, body) VALUES (?, ?, ?, ?) ON CONFLICT (run, key) DO NOTHING"
            tx.connection.execute(query, (run, topic, key, body))

        await self.transact(do)

    async def transact(self, do: Callable[[Transaction], T]) -> T:
        """Run a function in the next transaction and wait until it is durable; it raises before it writes, or not."""
        return await self.submit(do)

    def submit(self, do: Callable[[Transaction], T]) -> asyncio.Future[T]:
        """Run a function in the next transaction."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        if self._closing:
            raise RuntimeError("the journal is closed")
        if not self._handed:
            # What is submitted in one tick of the loop is handed over, and committed, together.
            loop.call_soon(self._hand_over)
        self._handed.append(_Work(do, done))
        return done

    def show_progress(self, run: str, body: bytes) -> None:
        """A sign of progress for watchers: written with the next commit, the oldest forgotten, never waited for."""
        ring = self._progress.get(run)
        if ring is None:
            ring = self._progress.setdefault(run, deque(maxlen=_RING))
        self._progressed[run] = n = self._progressed.get(run, 0) + 1
        ring.append((n, self._clock(), body))

    def _hand_over(self) -> None:
        handed, self._handed = self._handed, []
        with self._wake:
            self._work.extend(handed)
            self._wake.notify()

    # --- reading ------------------------------------------------------------------------------------------------------

    async def read(self, do: Callable[[Reader], T]) -> T:
        """Run a function on a reader, off the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, do)

    def _read(self, do: Callable[[Reader], T]) -> T:
        reader = self._readers.pop() if self._readers else Reader.open(self.folder)
        if reader is None:
            raise StorageError(str(self.path), "it has gone")
        try:
            return do(reader)
        finally:
            self._readers.append(reader)

    # --- the writer thread --------------------------------------------------------------------------------------------

    def _write(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                break
            self._commit(batch)
        self._commit([_Work(self._farewell, None)])
        if self._connection is not None:
            self._connection.close()

    def _next_batch(self) -> list[_Work] | None:
        size = 1 if self._fsync == "each" else _BATCH
        with self._wake:
            while not self._work and not self._closing:
                # With nothing at work there is nobody to give a sign of life for.
                self._wake.wait(_LOOK_SECONDS if self._held or self._progress else None)
                if self._progress or (self._held and self._is_beat_due()):
                    break
            if not self._work and self._closing:
                return None
            return [self._work.popleft() for _ in range(min(size, len(self._work)))]

    def _commit(self, batch: list[_Work]) -> None:
        results: list[_Result]
        try:
            results = self._transaction(batch)
        except StorageError as error:
            results = [(work, None, error) for work in batch]
        except Exception as error:  # noqa: BLE001  the thread outlives a mistake in one piece of work
            if len(batch) > 1:
                for work in batch:
                    self._commit([work])
                return
            results = [(batch[0], None, error)]
        _resolve(results)

    def _transaction(self, batch: Sequence[_Work]) -> list[_Result]:
        try:
            connection = self._connection
            if connection is None:
                connection = self._connection = connections.open_writer(self.folder, self._fsync, self._patience)
            connections.patiently(lambda: connection.execute("BEGIN IMMEDIATE"), self.path, self._patience)
            tx = Transaction(connection, str(self.path), self.owner, self._stale_seconds)
            results = [_attempt(work, tx) for work in batch]
            tx.index()
            self._write_progress(connection)
            beat_at = self._beat(connection)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._forget_connection()
            if connections.is_storage(error):
                raise connections.storage_error(self.path, error) from error
            raise
        except BaseException:
            self._forget_connection()
            raise
        tx.settle()
        self._beat_at = beat_at
        self._held = (self._held | tx.granted) - tx.released
        return results

    def _forget_connection(self) -> None:
        """After a failure nothing is known about the connection; the next transaction opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                return

    def _write_progress(self, connection: sqlite3.Connection) -> None:
        while self._progress:
            run, ring = self._progress.popitem()
            rows = [(run, n % _RING, n, at, body) for n, at, body in list(ring)]
            connection.executemany("INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?, ?)", rows)

    def _is_beat_due(self) -> bool:
        return self._beat_at is None or time.monotonic() - self._beat_at >= self._beat_seconds

    def _beat(self, connection: sqlite3.Connection) -> float | None:
        """Give a sign of life, when it is time: the moment of the last one."""
        if not self._is_beat_due():
            return self._beat_at
        now = time.monotonic()
        connection.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (self.owner, now))
        return now

    def _farewell(self, tx: Transaction) -> None:
        tx.connection.execute("UPDATE leases SET owner = NULL WHERE owner = ?", (self.owner,))
        tx.connection.execute("DELETE FROM owners WHERE owner = ?", (self.owner,))


FIRST = "requested"
"""The key of a run's first record."""

_Result = tuple[_Work, Any, BaseException | None]


def _attempt(work: _Work, tx: Transaction) -> _Result:
    try:
        return work, work.do(tx), None
    except DeputyError as error:
        return work, None, error


def _resolve(results: list[_Result]) -> None:
    """Tell everybody who waits, with one call per loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Result]] = {}
    for result in results:
        if result[0].done is not None:
            by_loop.setdefault(result[0].done.get_loop(), []).append(result)
    for loop, told in by_loop.items():
        try:
            loop.call_soon_threadsafe(_tell, told)
        except RuntimeError:
            continue


def _tell(results: list[_Result]) -> None:
    for work, value, error in results:
        if work.done is None or work.done.done():
            continue
        if error is None:
            work.done.set_result(value)
        else:
            work.done.set_exception(error)


def _root(state: State) -> str:
    return state.run if state.lineage is None else state.lineage.root_id
