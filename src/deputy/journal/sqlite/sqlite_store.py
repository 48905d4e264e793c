"""The journal of a home as a store: how commands without an engine reach it."""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from deputy.core.errors import StorageCorrupt, StorageFull
from deputy.journal import home
from deputy.journal.sql.sql_queries import STALE_SECONDS
from deputy.journal.sqlite import commit_marker
from deputy.journal.sqlite.connection import open_writer, retry_while_busy, typed
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.sqlite.sqlite_tables import SqliteTables

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from deputy.engine.budget import LocalBudgets
    from deputy.journal.sql.sql_journal import SqlJournal
    from deputy.journal.sql.sql_store import SqlTables
    from deputy.journal.sqlite.connection import Fsync

    T = TypeVar("T")

_LONG_LOG = 16 << 20


class SqliteStore:
    """The journal file of a home."""

    is_local = True
    passwords: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / home.JOURNAL
        self.location = str(self.path)
        self.name = str(folder.absolute())

    def queries(self) -> SqliteQueries | None:
        """Open it for reading; None when there is no journal."""
        return SqliteQueries.open(self.folder)

    def checked_queries(self) -> SqliteQueries | None:
        """The same after a check of the tables that list runs."""
        return SqliteQueries.open_any(self.folder)

    def journal(self, *, fsync: Fsync, mask: Callable[[bytes], bytes]) -> SqlJournal:
        """Open the journal of this process for writing."""
        from deputy.journal.sqlite.sqlite_journal import SqliteJournal

        return SqliteJournal(self.folder, fsync=fsync, mask=mask)

    def budgets(self, journal: SqlJournal) -> LocalBudgets:
        """The budgets of the trees of this process: a tree stays in one process."""
        from deputy.engine.budget import LocalBudgets
        from deputy.journal.nested import read_nested

        return LocalBudgets(partial(read_nested, journal))

    def now(self) -> float:
        """The time by the clock that dates its runs."""
        return time.time()

    @contextmanager
    def writing(self) -> Generator[SqliteStoreWriter]:
        """Open it for writing."""
        connection = open_writer(self.folder, "group")
        try:
            yield SqliteStoreWriter(connection, self.path)
        finally:
            connection.close()

    def pruning(self) -> AbstractContextManager[bool]:
        """Yes: each removal is a transaction of its own."""
        return nullcontext(enter_result=True)

    def make_room(self, do: Callable[[SqlTables | None], None]) -> None:
        """Run a function while no other process can resume a run, then empty the log."""
        try:
            connection = open_writer(self.folder, "group")
        except StorageFull:
            # If the journal cannot be opened for writing, no process can resume a run.
            do(None)
            return
        try:
            with typed(self.path):
                retry_while_busy(lambda: connection.execute("BEGIN IMMEDIATE"), self.path)
                do(SqliteTables(connection, self.location, STALE_SECONDS))
                connection.execute("ROLLBACK")
            _empty_log(connection)
        finally:
            connection.close()


class SqliteStoreWriter:
    """Transactions on one connection."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def transact(self, do: Callable[[SqlTables], T], *, removes: bool = False) -> T:
        """Run a function in one transaction."""
        connection, path = self._connection, self._path
        with typed(path):
            if removes and _is_long(path.with_name(f"{path.name}-wal")):
                _empty_log(connection)
            retry_while_busy(lambda: connection.execute("BEGIN IMMEDIATE"), path)
            try:
                if removes:
                    commit_marker.clear(path.parent)
                result = do(SqliteTables(connection, str(path), STALE_SECONDS))
                connection.execute("COMMIT")
            except sqlite3.IntegrityError as error:
                raise StorageCorrupt(str(path), str(error)) from error
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        if removes:
            # The removal is committed, even if a full disk prevents the vacuum.
            with suppress(StorageFull), typed(path):
                # `execute` would step this statement once and free one page; a script runs to its end.
                retry_while_busy(lambda: connection.executescript("PRAGMA incremental_vacuum"), path)
        return result


def _empty_log(connection: sqlite3.Connection) -> None:
    """Truncate the write-ahead log, unless a reader still uses it."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _is_long(log: Path) -> bool:
    try:
        return log.stat().st_size > _LONG_LOG
    except OSError:
        return False
