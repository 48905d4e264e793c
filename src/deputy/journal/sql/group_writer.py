"""The writer thread: it commits everything that was submitted during the last commit."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, TypeVarTuple

from msgspec import Struct

from deputy.core.errors import DeputyError, StorageError, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deputy.journal.shared_rate_limit import HeldUntil
    from deputy.journal.sql.rows import Row
    from deputy.journal.sql.transaction import SqlLease, Transaction

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


class _Shown(Struct, frozen=True, gc=False):
    """A pending progress event as JSON, and its place in the ring."""

    slot: int
    at: float
    body: bytes


class Work(NamedTuple):
    """Something to do in the next transaction."""

    do: Callable[..., Any]
    args: tuple[Any, ...] = ()
    done: asyncio.Future[Any] | None = None
    lease: SqlLease | None = None
    """The lease of a record that no caller awaits: if it is lost, no later record may be written."""
    runs: tuple[str, ...] = ()
    """The runs whose leases it names besides those among its arguments."""
    trees: tuple[str, ...] = ()
    """The roots of the trees whose budgets it names."""


class GroupWriter:
    """A thread with the process's only writing connection; a store overrides how it commits a batch."""

    def __init__(self, location: str, owner: str, mask: Callable[[bytes], bytes], beat_seconds: float) -> None:
        self.location = location
        self.owner = owner
        self._mask = mask
        self._beat_seconds = beat_seconds
        self._batch_size = _BATCH
        self._handed: list[Work] = []
        self._work: deque[Work] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._closing_at = float("inf")
        self._is_abandoned = False
        self._progress: dict[str, deque[_Shown]] = {}
        self._progressed: dict[str, int] = {}
        self._showing = threading.Lock()
        self._shown_at = float("-inf")
        self._beat_at: float | None = None
        self._held: set[str] = set()
        self._beats_always = False
        self.rate_limits: dict[str, HeldUntil] = {}
        """The held-back provider accounts, as of the last commit."""
        self._thread = threading.Thread(target=self._write, name="deputy-journal-writer", daemon=True)

    def _transaction(self, batch: Sequence[Work]) -> list[Result]:
        """Do a batch in one transaction; a StorageError is the result of all of it."""
        raise NotImplementedError

    def _close(self) -> None:
        """Close the connection, in the thread."""
        raise NotImplementedError

    def submit(
        self,
        do: Callable[[Transaction, *Ts], T],
        *args: *Ts,
        runs: tuple[str, ...] = (),
        trees: tuple[str, ...] = (),
    ) -> asyncio.Future[T]:
        """Run a function in the next transaction; done when that is durable. It must raise before it writes.

        `runs` are those whose leases it needs besides the leases among its arguments, `trees` those whose budgets.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._enqueue(Work(do, args, done, None, runs, trees))
        return done

    def submit_for(self, lease: SqlLease, do: Callable[[Transaction, *Ts], Any], *args: *Ts) -> None:
        """The same without a future: if it is lost, the lease becomes unusable."""
        self._enqueue(Work(do, args, None, lease))

    def _enqueue(self, work: Work) -> None:
        if self._closing:
            raise StorageFailed(self.location, "this process has closed it", "Open it again.")
        if not self._handed:
            # Everything submitted in one tick of the loop is committed together.
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._handed.append(work)

    def show_progress(self, run: str, at: float, body: bytes) -> None:
        """Queue a progress event; it is written with one of the next commits."""
        # The writer takes what is pending: an event added to a ring that it has taken would be lost.
        with self._showing:
            ring = self._progress.get(run)
            if ring is None:
                ring = self._progress[run] = deque(maxlen=_RING)
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
            self._closing_at = time.monotonic()
            if not orderly:
                self._work.clear()
                self._held.clear()
                self._is_abandoned = True
            self._wake.notify()
        await bounded_wait(self._thread.join)

    def beat_always(self) -> None:
        """Send heartbeats also while no lease is held."""
        self._beats_always = True

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
            self._commit([Work(self._release_all)])
        self._close()

    def _next_batch(self) -> list[Work] | None:
        with self._wake:
            while not self._work and not self._closing:
                # Without held leases no heartbeat is needed, unless others must know of this process.
                is_beating = self._held or self._beats_always
                self._wake.wait(_LOOK_SECONDS if is_beating or self._progress else None)
                if self._progress or (is_beating and self._is_beat_due()):
                    break
            if not self._work and self._closing:
                return None
            return [self._work.popleft() for _ in range(min(self._batch_size, len(self._work)))]

    def _commit(self, batch: list[Work]) -> None:
        results: list[Result]
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

    def _is_progress_due(self, *, has_ends: bool) -> bool:
        is_due = has_ends or self._closing or time.monotonic() - self._shown_at >= _SHOW_SECONDS
        return bool(self._progress) and is_due

    def _take_progress(self) -> list[Row]:
        """The rows of the pending progress."""
        with self._showing:
            taken, self._progress = self._progress, {}
        return [(run, one.slot, one.at, self._mask(one.body)) for run, ring in taken.items() for one in ring]

    def _is_beat_due(self) -> bool:
        return self._beat_at is None or time.monotonic() - self._beat_at >= self._beat_seconds

    def _committed(self, tx: Transaction) -> None:
        """After the commit: keep what the transaction has changed."""
        tx.flush_pending()
        self._held = (self._held | tx.granted) - tx.released
        for run in tx.released:
            self._progressed.pop(run, None)

    def _release_all(self, tx: Transaction) -> None:
        tx.tables.execute("UPDATE leases SET owner = NULL WHERE owner = ?", (self.owner,))
        tx.tables.execute("DELETE FROM owners WHERE owner = ?", (self.owner,))


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


Result = tuple[Work, Any, BaseException | None]
"""Some work with its value or its error."""


def attempt(work: Work, tx: Transaction) -> Result:
    """Do one piece of work in a transaction."""
    try:
        return work, work.do(tx, *work.args), None
    except DeputyError as error:
        return _lost(work, error)


def _lost(work: Work, error: BaseException) -> Result:
    """The result of failed work; without a caller, the lease keeps the error for its next write."""
    if work.lease is not None:
        work.lease.trouble = error
    return work, None, error


def _resolve(results: list[Result]) -> None:
    """Resolve the futures, with one call per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Result]] = {}
    for result in results:
        if result[0].done is not None:
            by_loop.setdefault(result[0].done.get_loop(), []).append(result)
    for loop, text in by_loop.items():
        try:
            loop.call_soon_threadsafe(_emit, text)
        except RuntimeError:
            continue


def _emit(results: list[Result]) -> None:
    for work, value, error in results:
        if work.done is None or work.done.done():
            continue
        if error is None:
            work.done.set_result(value)
        else:
            work.done.set_exception(error)
