"""The writer thread: it commits everything that was submitted during the last commit."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, TypeVarTuple

from deputy.core.errors import DeputyError, StorageError, StorageFailed, StorageGone
from deputy.journal import home
from deputy.journal.clock import Clock, running_clock, start_clock
from deputy.journal.shared_rate_limit import HeldUntil, read_rate_limits
from deputy.journal.sqlite import connection as connections
from deputy.journal.sqlite.commit_marker import CommitMarker
from deputy.journal.sqlite.rows import PUT_PROGRESS, execute
from deputy.journal.sqlite.transaction import SqliteLease, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from deputy.journal.sqlite.connection import Fsync

    T = TypeVar("T")
    Ts = TypeVarTuple("Ts")

BEAT_SECONDS = 3.0
CLOSE_SECONDS = 35.0
"""Longer than a transaction may wait for the lock."""
_LOOK_SECONDS = 0.25
_BATCH = 512
_SHOW_SECONDS = 0.1
"""The shortest time between two writes of progress; watchers poll no more often."""
_RING = 256
"""Progress events kept per run."""


class _Shown(NamedTuple):
    """A pending progress event as JSON, and its place in the ring."""

    slot: int
    at: float
    body: bytes


class _Work(NamedTuple):
    do: Callable[..., Any]
    args: tuple[Any, ...] = ()
    done: asyncio.Future[Any] | None = None
    lease: SqliteLease | None = None
    """The lease of a record that no caller awaits: if it is lost, no later record may be written."""


class Writer:
    """A thread with the process's only writing connection."""

    def __init__(
        self,
        folder: Path,
        *,
        fsync: Fsync,
        owner: str,
        clock: Clock | None,
        mask: Callable[[bytes], bytes],
        beat_seconds: float,
        stale_seconds: float,
        max_wait_seconds: float,
    ) -> None:
        self.folder = folder
        self.path = folder / home.JOURNAL
        self.owner = owner
        self._fsync: Fsync = fsync
        self._mask = mask
        self._beat_seconds = beat_seconds
        self._stale_seconds = stale_seconds
        self._wait_seconds = max_wait_seconds
        connection = connections.open_writer(folder, fsync, max_wait_seconds)
        self._connection: sqlite3.Connection | None = connection
        self.clock = self._start_clock(connection) if clock is None else clock
        self._file = _identity(self.path)
        self._is_gone = False
        self._marker = CommitMarker(folder)
        self._handed: list[_Work] = []
        self._work: deque[_Work] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._is_abandoned = False
        self._progress: dict[str, deque[_Shown]] = {}
        self._progressed: dict[str, int] = {}
        self._shown_at = float("-inf")
        self._beat_at: float | None = None
        self._held: set[str] = set()
        self._fenced: dict[str, SqliteLease] = {}
        """Leases that are valid as long as no other connection writes."""
        self._version = -1
        """SQLite's data version as of the last transaction."""
        self.rate_limits: dict[str, HeldUntil] = {}
        """The held-back provider accounts, as of the last commit."""
        self._thread = threading.Thread(target=self._write, name="deputy-journal-writer", daemon=True)
        self._thread.start()

    def _start_clock(self, connection: sqlite3.Connection) -> Clock:
        try:
            with connections.typed(self.path):
                clock = running_clock(connection)
                if clock is None:
                    connections.retry_while_busy(
                        lambda: connection.execute("BEGIN IMMEDIATE"), self.path, self._wait_seconds
                    )
                    clock = start_clock(connection)
                    connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return clock

    def submit(self, do: Callable[[Transaction, *Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run a function in the next transaction; done when that is durable. It must raise before it writes."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._enqueue(_Work(do, args, done))
        return done

    def submit_for(self, lease: SqliteLease, do: Callable[[Transaction, *Ts], Any], *args: *Ts) -> None:
        """The same without a future: if it is lost, the lease becomes unusable."""
        self._enqueue(_Work(do, args, None, lease))

    def _enqueue(self, work: _Work) -> None:
        if self._closing:
            raise StorageFailed(str(self.path), "this process has closed it", "Open it again.")
        if not self._handed:
            # Everything submitted in one tick of the loop is committed together.
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._handed.append(work)

    def show_progress(self, run: str, at: float, body: bytes) -> None:
        """Queue a progress event; it is written with one of the next commits."""
        ring = self._progress.get(run)
        if ring is None:
            ring = self._progress.setdefault(run, deque(maxlen=_RING))
        count = self._progressed.get(run, 0)
        self._progressed[run] = count + 1
        ring.append(_Shown(count % _RING, at, body))

    async def close(self, *, orderly: bool = True) -> None:
        """Write what is pending, release all leases and close the file; if not orderly, stop as a kill would."""
        if self._closing:
            return
        self._hand_over()
        with self._wake:
            self._closing = True
            if not orderly:
                self._work.clear()
                self._held.clear()
                self._is_abandoned = True
            self._wake.notify()
        await bounded_wait(self._thread.join)

    def _hand_over(self) -> None:
        handed, self._handed = self._handed, []
        with self._wake:
            self._work.extend(handed)
            self._wake.notify()

    def _write(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                break
            self._commit(batch)
        if not self._is_abandoned:
            self._commit([_Work(self._release_all)])
        if self._connection is not None:
            self._connection.close()
        self._marker.close()

    def _next_batch(self) -> list[_Work] | None:
        size = 1 if self._fsync == "each" else _BATCH
        with self._wake:
            while not self._work and not self._closing:
                # Without held leases no heartbeat is needed.
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
            results = [_lost(work, error) for work in batch]
        except Exception as error:  # noqa: BLE001  the thread survives a bug in one piece of work
            if len(batch) > 1:
                for work in batch:
                    self._commit([work])
                return
            results = [_lost(work, error) for work in batch]
        _resolve(results)

    def _transaction(self, batch: Sequence[_Work]) -> list[_Result]:
        if self._is_gone:
            # A new file would lack the earlier records.
            raise StorageGone(str(self.path), "it was deleted or replaced while it was written to")
        try:
            connection = self._connection
            if connection is None:
                connection = self._connection = connections.open_writer(self.folder, self._fsync, self._wait_seconds)
            connections.retry_while_busy(lambda: connection.execute("BEGIN IMMEDIATE"), self.path, self._wait_seconds)
            try:
                tx, results = self._execute(connection, batch, is_hopeful=True)
            except sqlite3.IntegrityError:
                # A key exists already. That is rare, so only now each key is looked up.
                connection.execute("ROLLBACK")
                connections.retry_while_busy(
                    lambda: connection.execute("BEGIN IMMEDIATE"), self.path, self._wait_seconds
                )
                tx, results = self._execute(connection, batch, is_hopeful=False)
            shown_at = self._write_progress(connection, has_ends=bool(tx.released))
            beat_at = self._beat(connection)
            rate_limits = read_rate_limits(connection)
            if tx.has_removed:
                self._marker.clear()
            connection.execute("COMMIT")
            self._check_file()
        except sqlite3.Error as error:
            self._forget_connection()
            if connections.is_storage(error):
                raise connections.storage_error(self.path, error) from error
            raise
        except BaseException:
            self._forget_connection()
            raise
        if tx.has_removed:
            # Another process may have marked a removed record meanwhile.
            self._marker.clear()
        elif tx.position is not None:
            self._marker.set(tx.position)
        tx.flush_pending()
        self.rate_limits = rate_limits
        self._shown_at = shown_at
        self._beat_at = beat_at
        self._held = (self._held | tx.granted) - tx.released
        for run in tx.released:
            self._progressed.pop(run, None)
        return results

    def _execute(
        self, connection: sqlite3.Connection, batch: Sequence[_Work], *, is_hopeful: bool
    ) -> tuple[Transaction, list[_Result]]:
        """Run a batch in the open transaction."""
        version: int = connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version or not is_hopeful:
            self._version, self._fenced = version, {}
        tx = Transaction(
            connection, str(self.path), self.owner, self._stale_seconds, fenced=self._fenced, is_hopeful=is_hopeful
        )
        results = [_attempt(work, tx) for work in batch]
        tx.index()
        return tx, results

    def _check_file(self) -> None:
        """Raise when the file was deleted or replaced: SQLite itself does not notice."""
        if _identity(self.path) != self._file:
            self._is_gone = True
            raise StorageGone(str(self.path), "it was deleted or replaced while it was written to")

    def _forget_connection(self) -> None:
        """Drop the connection after a failure; the next transaction opens another."""
        self._version = -1
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                return

    def _write_progress(self, connection: sqlite3.Connection, *, has_ends: bool) -> float:
        """Write pending progress if it is due or a run ends; returns the time of the last write."""
        now = time.monotonic()
        is_due = has_ends or self._closing or now - self._shown_at >= _SHOW_SECONDS
        if not (self._progress and is_due):
            return self._shown_at
        shown: list[tuple[str, _Shown]] = []
        while self._progress:
            run, ring = self._progress.popitem()
            shown += [(run, one) for one in ring]
        rows = [(run, one.slot, one.at, self._mask(one.body)) for run, one in shown]
        execute(connection, PUT_PROGRESS, rows)
        return now

    def _is_beat_due(self) -> bool:
        return self._beat_at is None or time.monotonic() - self._beat_at >= self._beat_seconds

    def _beat(self, connection: sqlite3.Connection) -> float | None:
        """Write the heartbeat if it is due; returns the time of the last one."""
        if not self._is_beat_due():
            return self._beat_at
        now = time.monotonic()
        connection.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (self.owner, now))
        return now

    def _release_all(self, tx: Transaction) -> None:
        tx.connection.execute("UPDATE leases SET owner = NULL WHERE owner = ?", (self.owner,))
        tx.connection.execute("DELETE FROM owners WHERE owner = ?", (self.owner,))


async def bounded_wait(do: Callable[[], object]) -> None:
    """Run a blocking call in a daemon thread, and wait a bounded time for it."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def work() -> None:
        try:
            do()
        finally:
            # The loop may be closed by now.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(done.set)

    threading.Thread(target=work, name="deputy-closing", daemon=True).start()
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await done.wait()


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None when it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


_Result = tuple[_Work, Any, BaseException | None]


def _attempt(work: _Work, tx: Transaction) -> _Result:
    try:
        return work, work.do(tx, *work.args), None
    except DeputyError as error:
        return _lost(work, error)


def _lost(work: _Work, error: BaseException) -> _Result:
    """The result of failed work; without a caller, the lease keeps the error for its next write."""
    if work.lease is not None:
        work.lease.trouble = error
    return work, None, error


def _resolve(results: list[_Result]) -> None:
    """Resolve the futures, with one call per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Result]] = {}
    for result in results:
        if result[0].done is not None:
            by_loop.setdefault(result[0].done.get_loop(), []).append(result)
    for loop, text in by_loop.items():
        try:
            loop.call_soon_threadsafe(_emit, text)
        except RuntimeError:
            continue


def _emit(results: list[_Result]) -> None:
    for work, value, error in results:
        if work.done is None or work.done.done():
            continue
        if error is None:
            work.done.set_result(value)
        else:
            work.done.set_exception(error)
