"""The writer of the Postgres journal: a batch is one call, and waits while the database is away."""

from __future__ import annotations

import socket
import sys
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from deputy.core.errors import StorageAway, StorageError
from deputy.journal.clock import Clock
from deputy.journal.postgres import postgres_schema
from deputy.journal.postgres.postgres_tables import COLUMNS, NOW, PostgresTables, columns
from deputy.journal.postgres.store_address import PostgresSession, driver, is_away, is_of_database, storage_error
from deputy.journal.shared_rate_limit import HeldUntil
from deputy.journal.sql.group_writer import GroupWriter, attempt
from deputy.journal.sql.rows import LeaseRow
from deputy.journal.sql.transaction import SqlLease, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deputy.core.events import Moment
    from deputy.journal.postgres.postgres_queries import PostgresQueries
    from deputy.journal.postgres.store_address import StoreAddress
    from deputy.journal.sql.group_writer import Result, Work
    from deputy.journal.sql.rows import Row
    from deputy.journal.sql.sql_store import Bulk

    Done = tuple[Transaction, list[Result]]

_PAUSE_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
_CLOSING_SECONDS = 10.0
"""How long a process that ends waits for a database that is away."""
_WIDTH = 8 + sum(COLUMNS.values()) + 2
_COMMIT = f"SELECT * FROM commit_batch({', '.join(f'${at}' for at in range(1, _WIDTH + 1))})"  # noqa: S608
_DONE, _DONE_BEFORE = 1, 2


class NeedsSession(Exception):
    """A batch reads, so it cannot be one call."""


class CommitRecorder:
    """Tables that only collect what a batch writes."""

    def __init__(self) -> None:
        self.rows: dict[Bulk, list[Row]] = {what: [] for what in COLUMNS}
        self.free: set[str] = set()
        """The runs that must be free."""

    def put(self, what: Bulk, rows: Sequence[Row]) -> None:
        """Collect rows."""
        self.rows[what] += rows

    def holder(self, run: str) -> LeaseRow | None:
        """A free lease, which the commit verifies."""
        self.free.add(run)
        return LeaseRow("", 0, True)

    def execute(self, query: str, values: Sequence[Any] = (), /) -> Any:
        """Refuse: the answer is not known here."""
        raise NeedsSession

    def add_event(self, row: Row) -> bool:
        """Refuse."""
        raise NeedsSession

    def grant(self, run: str, owner: str, epoch: int) -> None:
        """Refuse."""
        raise NeedsSession

    def announce(self, runs: Sequence[str], callers: Sequence[str]) -> None:
        """Refuse."""
        raise NeedsSession

    def serialize(self, what: str) -> None:
        """Refuse."""
        raise NeedsSession

    def holds(self, run: str, epoch: int, owner: str) -> bool:
        """Refuse."""
        raise NeedsSession

    def has_ended(self, owner: str) -> bool:
        """Refuse."""
        raise NeedsSession

    def moment(self) -> Moment:
        """Refuse."""
        raise NeedsSession

    def queries(self) -> PostgresQueries:
        """Refuse."""
        raise NeedsSession


class HopefulTransaction(Transaction):
    """A transaction that takes its leases for valid, and lets the commit verify them."""

    def __init__(self, recorder: CommitRecorder, location: str, owner: str) -> None:
        super().__init__(recorder, location, owner, is_hopeful=True)
        self.named: dict[str, int] = {}
        """The runs whose leases it needs, with their epochs."""

    def fence(self, lease: SqlLease) -> None:
        """Name a lease; its epoch is verified by the commit."""
        if lease.trouble is not None:
            raise lease.trouble
        if self._fenced.get(lease.run) is not lease and self.named.setdefault(lease.run, lease.epoch) != lease.epoch:
            raise NeedsSession


class PostgresWriter(GroupWriter):
    """Commits to a Postgres store."""

    def __init__(
        self,
        address: StoreAddress,
        *,
        owner: str,
        mask: Callable[[bytes], bytes],
        beat_seconds: float,
        stale_seconds: float,
        max_wait_seconds: float,
        settings: dict[str, str] | None = None,
    ) -> None:
        super().__init__(address.location, owner, mask, beat_seconds)
        self._address = address
        self._settings = settings
        self._stale_seconds = stale_seconds
        self._max_wait_seconds = max_wait_seconds
        self._number = 0
        """The number of the batch, which the store keeps."""
        self._commit_seconds = 0.0
        self._me = (socket.gethostname(), version("deputy-agents"))
        self._healthy_since = time.monotonic()
        self._unique: type[Exception] = driver().UniqueViolationError
        self._session: PostgresSession | None = PostgresSession(address, settings)
        try:
            postgres_schema.check(self._session)
            self.clock = DatabaseClock(self._session)
        except BaseException:
            self._session.close()
            raise
        self._thread.start()

    def is_healthy(self) -> bool:
        """Whether the connection has worked for so long that living processes must have sent a heartbeat meanwhile."""
        return time.monotonic() - self._healthy_since >= self._stale_seconds

    def is_beating(self) -> bool:
        """Whether a batch, and with it a heartbeat, was written lately."""
        return self._beat_at is not None and time.monotonic() - self._beat_at < self._stale_seconds

    def commit_times(self) -> tuple[float, int]:
        """The seconds of all commits, and their number."""
        return self._commit_seconds, self._number

    def _release_all(self, tx: Transaction) -> None:
        """Place what workers carry out; the rest can be resumed by any process."""
        own = (
            "SELECT l.run FROM leases l JOIN runs r USING (run) WHERE l.owner = ? AND l.queue IS NOT NULL AND r.is_live"
        )
        left = [run for (run,) in tx.tables.execute(own, (self.owner,)).fetchall()]
        if left:
            tx.tables.execute("SELECT place(?)", (left,))
        super()._release_all(tx)

    def _close(self) -> None:
        if self._session is None:
            return
        if self._is_abandoned:
            self._session.drop()
        else:
            self._session.close()

    def _transaction(self, batch: Sequence[Work]) -> list[Result]:
        self._number += 1
        began = time.monotonic()
        progress: list[Row] = []
        sent: list[Done] = []
        until: float | None = None
        tries = 0
        while True:
            try:
                tx, results = self._commit_once(batch, progress, sent)
                break
            except Exception as error:
                self._drop_session(is_lost=is_away(error))
                if not is_away(error):
                    if isinstance(error, StorageError) or not is_of_database(error):
                        # A value that Postgres cannot hold fails alone: the rest of the batch is tried again.
                        raise
                    raise storage_error(self._address, error) from error
                now = time.monotonic()
                until = now + self._max_wait_seconds if until is None else until
                if now >= min(until, self._closing_at + _CLOSING_SECONDS) or self._is_abandoned:
                    why = error.what if isinstance(error, StorageError) else error
                    raise StorageAway(self.location, f"it was away for {self._max_wait_seconds:g} s: {why}") from error
            time.sleep(_PAUSE_SECONDS[min(tries, len(_PAUSE_SECONDS) - 1)])
            tries += 1
        if progress:
            self._shown_at = time.monotonic()
        self._beat_at = time.monotonic()
        self._commit_seconds += self._beat_at - began
        self._committed(tx)
        return results

    def _commit_once(self, batch: Sequence[Work], progress: list[Row], sent: list[Done]) -> Done:
        """Commit a batch; `sent` has what was sent before, if its answer was lost."""
        if self._session is None:
            self._session = PostgresSession(self._address, self._settings)
            postgres_schema.check(self._session)
            self.clock.measure(self._session)
        session = self._session
        try:
            done = self._commit_at_once(session, batch, progress, sent)
        except NeedsSession:
            done = None
        except self._unique:
            # A key exists already.
            done = None
        if done is not None:
            return done
        try:
            return self._commit_in_steps(session, batch, progress, sent, is_hopeful=True)
        except self._unique:
            return self._commit_in_steps(session, batch, progress, sent, is_hopeful=False)

    def _commit_at_once(
        self, session: PostgresSession, batch: Sequence[Work], progress: list[Row], sent: list[Done]
    ) -> Done | None:
        """Commit a batch in one call; None when a lease is not as it was taken for."""
        recorder = CommitRecorder()
        tx = HopefulTransaction(recorder, self.location, self.owner)
        results = [attempt(work, tx) for work in batch]
        tx.index()
        self._add_progress(tx, progress)
        recorder.rows["progress"] = progress
        arrays = [column for what in COLUMNS for column in columns(what, recorder.rows[what])]
        named = [list(tx.named), list(tx.named.values()), sorted(recorder.free - tx.released)]
        sent.append((tx, results))
        notified = [sorted(tx.notices), sorted(tx.callers)]
        row = session.fetch(_COMMIT, self.owner, self._number, *self._me, time.time(), *named, *arrays, *notified)[0]
        status, accounts, held, limited = row
        if status == _DONE_BEFORE:
            # The transaction that was sent first is the one that happened.
            return sent[0]
        if status != _DONE:
            sent.pop()
            return None
        self._keep_rate_limits(zip(accounts or (), held or (), limited or (), strict=True))
        return tx, results

    def _commit_in_steps(
        self,
        session: PostgresSession,
        batch: Sequence[Work],
        progress: list[Row],
        sent: list[Done],
        *,
        is_hopeful: bool,
    ) -> Done:
        """Commit a batch that reads."""
        session.run("BEGIN")
        try:
            if session.fetch("SELECT lock_batch($1, $2, $3)", self.owner, self._number, _runs_of(batch))[0][0]:
                session.run("ROLLBACK")
                return sent[0]
            sent.clear()
            if trees := sorted({tree for work in batch for tree in work.trees}):
                session.fetch("SELECT lock_budgets($1)", trees)
            session.fetch("SELECT beat($1, $2, $3, $4, $5)", self.owner, self._number, *self._me, time.time())
            tables = PostgresTables(session, self._stale_seconds)
            tx = Transaction(tables, self.location, self.owner, is_hopeful=is_hopeful)
            results = [attempt(work, tx) for work in batch]
            tx.index()
            self._add_progress(tx, progress)
            if progress:
                tables.put("progress", progress)
            tx.announce()
            limits = session.fetch("SELECT account, held_until, limited_until FROM rate_limits")
        except BaseException:
            if not session.is_closed:
                session.run("ROLLBACK")
            raise
        sent.append((tx, results))
        session.run("COMMIT")
        self._keep_rate_limits(limits)
        return tx, results

    def _add_progress(self, tx: Transaction, progress: list[Row]) -> None:
        """Take the pending progress if it is due; a batch that is tried again keeps it."""
        if self._is_progress_due(has_ends=bool(tx.released)):
            # One statement cannot write the same slot twice.
            taken = {(row[0], row[1]): row for row in (*progress, *self._take_progress())}
            progress[:] = taken.values()

    def _keep_rate_limits(self, rows: Any) -> None:
        self.rate_limits = {account: HeldUntil(until, limited) for account, until, limited in rows}

    def _drop_session(self, *, is_lost: bool) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.drop()
        if is_lost:
            self._healthy_since = time.monotonic()


def _runs_of(batch: Sequence[Work]) -> list[str]:
    """The runs whose leases a batch names."""
    named = {run for work in batch for run in work.runs}
    return sorted(named | {value.run for work in batch for value in work.args if isinstance(value, SqlLease)})


class DatabaseClock(Clock):
    """The clock of the database, which this process continues by a clock of its own."""

    def __init__(self, session: PostgresSession) -> None:
        super().__init__(wall=self.now, monotonic=steady)
        self.measure(session)

    def measure(self, session: PostgresSession) -> None:
        """Ask the database for the time: with every new connection, since the clocks may have drifted apart."""
        before = steady()
        now: float = session.fetch(NOW)[0][0]
        self._offset = now - (before + steady()) / 2


def steady() -> float:
    """Seconds by a clock of this machine that also counts while the machine is suspended, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()
