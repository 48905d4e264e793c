"""The writer of the SQLite journal."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

from deputy.core.errors import StorageGone
from deputy.journal import home
from deputy.journal.clock import Clock, running_clock, start_clock
from deputy.journal.shared_rate_limit import read_rate_limits
from deputy.journal.sql.group_writer import GroupWriter, attempt
from deputy.journal.sql.transaction import SqlLease, Transaction
from deputy.journal.sqlite import connection as connections
from deputy.journal.sqlite.commit_marker import CommitMarker, CommittedPosition
from deputy.journal.sqlite.sqlite_tables import SqliteTables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from deputy.journal.sql.group_writer import Result, Work
    from deputy.journal.sqlite.connection import Fsync


class SqliteWriter(GroupWriter):
    """Commits to one file."""

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
        super().__init__(str(self.path), owner, mask, beat_seconds)
        self._fsync: Fsync = fsync
        self._batch_size = 1 if fsync == "each" else self._batch_size
        self._stale_seconds = stale_seconds
        self._wait_seconds = max_wait_seconds
        connection = connections.open_writer(folder, fsync, max_wait_seconds)
        self._connection: sqlite3.Connection | None = connection
        self.clock = self._start_clock(connection) if clock is None else clock
        self._file = _identity(self.path)
        self._is_gone = False
        self._marker = CommitMarker(folder)
        self._fenced: dict[str, SqlLease] = {}
        """Leases that are valid as long as no other connection writes."""
        self._version = -1
        """SQLite's data version as of the last transaction."""
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

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._marker.close()

    def _transaction(self, batch: Sequence[Work]) -> list[Result]:
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
            shown_at = self._write_progress(tx, has_ends=bool(tx.released))
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
        elif tx.last is not None:
            self._marker.set(CommittedPosition(*tx.last))
        self._committed(tx)
        self.rate_limits = rate_limits
        self._shown_at = shown_at
        self._beat_at = beat_at
        return results

    def _execute(
        self, connection: sqlite3.Connection, batch: Sequence[Work], *, is_hopeful: bool
    ) -> tuple[Transaction, list[Result]]:
        """Run a batch in the open transaction."""
        version: int = connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version or not is_hopeful:
            self._version, self._fenced = version, {}
        tables = SqliteTables(connection, self.location, self._stale_seconds)
        tx = Transaction(tables, self.location, self.owner, fenced=self._fenced, is_hopeful=is_hopeful)
        results = [attempt(work, tx) for work in batch]
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

    def _write_progress(self, tx: Transaction, *, has_ends: bool) -> float:
        """Write pending progress if it is due or a run ends; returns the time of the last write."""
        if not self._is_progress_due(has_ends=has_ends):
            return self._shown_at
        tx.tables.put("progress", self._take_progress())
        return time.monotonic()

    def _beat(self, connection: sqlite3.Connection) -> float | None:
        """Write the heartbeat if it is due; returns the time of the last one."""
        if not self._is_beat_due():
            return self._beat_at
        now = time.monotonic()
        connection.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (self.owner, now))
        return now


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None when it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
