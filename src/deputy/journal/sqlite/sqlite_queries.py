"""The Queries port over one SQLite file: it never blocks a writer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from deputy.core.errors import StorageCorrupt
from deputy.engine.ports.queries import FOLLOW_LIMIT, Changes, Cursor, LeaseHolder
from deputy.journal import home
from deputy.journal.clock import read_clock
from deputy.journal.process_identity import has_ended
from deputy.journal.sql.sql_queries import STALE_SECONDS, SqlQueries
from deputy.journal.sqlite.connection import open_reader, retry_while_busy, typed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection
    from pathlib import Path

    from deputy.core.state import State
    from deputy.engine.ports.queries import LoggedErrorRow

_LISTED = ("runs", "leases", "owners")
"""The tables that list runs: a row lost from an index would be missing silently."""
_ALL_TABLES = "1"
"""Checks all tables; the number is how many problems SQLite reports."""
_HOLDERS = "SELECT l.run, l.owner, o.beat FROM leases l LEFT JOIN owners o USING (owner) WHERE l.owner IS NOT NULL"
_CURSOR = (
    "SELECT (SELECT number FROM generation), coalesce((SELECT max(id) FROM events), 0),"
    " coalesce((SELECT max(id) FROM progress), 0)"
)
_PROBES = (
    "SELECT id, run, seq, key, at, clock, kind, body, sum FROM events LIMIT 0",
    "SELECT run, parent, root, is_live, is_settled, last_at, state, sum FROM runs LIMIT 0",
    "SELECT l.run, l.owner, l.epoch, o.beat FROM leases l LEFT JOIN owners o USING (owner) LIMIT 0",
    "SELECT run, topic, is_taken FROM inbox LIMIT 0",
    "SELECT id, run, slot, at, body FROM progress LIMIT 0",
    "SELECT boot, offset FROM clocks LIMIT 0",
    "SELECT number FROM generation LIMIT 0",
    "SELECT p.run, e.id, e.first_at, e.last_at, e.count, e.body, e.sum FROM pins p, errors e LIMIT 0",
    # These read pages: a lost table must not look like an empty one.
    "SELECT count(*) FROM runs",
    "SELECT count(*) FROM leases",
    "SELECT max(id) FROM events",
)


class SqliteQueries(SqlQueries):
    """A view of the journal through one read-only connection."""

    def __init__(self, connection: sqlite3.Connection, path: Path, stale_seconds: float = STALE_SECONDS) -> None:
        super().__init__(str(path), str(path.parent.absolute()))
        self._connection = connection
        self.path = path
        self._stale_seconds = stale_seconds
        self._read_at: int | None = None
        self._live_states: list[State] = []

    @classmethod
    def open(
        cls, folder: Path, *, is_written: bool = False, stale_seconds: float = STALE_SECONDS
    ) -> SqliteQueries | None:
        """Open the journal in this home; None when there is none. `is_written`: this process writes it."""
        connection = open_reader(folder, is_written=is_written)
        return None if connection is None else cls(connection, folder / home.JOURNAL, stale_seconds)

    @classmethod
    def open_any(cls, folder: Path) -> SqliteQueries | None:
        """The same after a check of the tables that list runs; raises StorageCorrupt when one is damaged."""
        queries = cls.open(folder)
        if queries is None:
            return None
        try:
            queries.probe()
            for table in _LISTED:
                queries._check_table(table)
        except BaseException:
            queries.close()
            raise
        return queries

    def probe(self) -> None:
        """Check that all tables have our columns."""
        for query in _PROBES:
            self._rows(query)

    def ended_owners(self) -> list[str]:
        """The processes that have ended, but still have a heartbeat."""
        return [owner for (owner,) in self._rows("SELECT owner FROM owners") if has_ended(owner)]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def now(self) -> float:
        """The time by the journal's clock."""
        with typed(self.path):
            return read_clock(self._connection).now()

    def live(self) -> list[State]:
        """The runs that have not ended, oldest first; read again only when the file has changed."""
        changes = self.changes()
        if changes != self._read_at:
            self._live_states, self._read_at = super().live(), changes
        return self._live_states.copy()

    def holders(self, runs: Collection[str] | None = None) -> dict[str, LeaseHolder]:
        """The processes that hold the leases of these runs, or of all, by run."""
        now = time.monotonic()
        known: dict[str, LeaseHolder] = {}
        found: dict[str, LeaseHolder] = {}
        asked = None if runs is None else set(runs)
        for run, owner, beat in self._rows(_HOLDERS):
            if asked is not None and run not in asked:
                continue
            # Each process is looked up once, however many runs it has.
            if owner not in known:
                is_silent = beat is None or now - beat > self._stale_seconds
                known[owner] = LeaseHolder(owner=owner, is_gone=has_ended(owner), is_silent=is_silent)
            found[run] = known[owner]
        return found

    def errors(self, limit: int) -> list[LoggedErrorRow]:
        """The latest errors of the error log, newest first; a damaged row is left out and noted."""
        self._check_table("errors")
        return super().errors(limit)

    def cursor(self) -> Cursor:
        """The present end of the journal."""
        return Cursor(*self._rows(_CURSOR)[0])

    def follow(self, cursor: Cursor, limit: int = FOLLOW_LIMIT) -> Changes:
        """Everything that changed since a cursor, up to a limit."""
        if self.cursor() == cursor:
            return Changes(cursor=cursor)
        self._rows("BEGIN")
        try:
            return self._changes_between(cursor, self.cursor(), limit)
        finally:
            self._connection.execute("ROLLBACK")

    def changes(self) -> int:
        """A number that changes when another process has written."""
        return self._rows("PRAGMA data_version")[0][0]

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with typed(self.path):
            return retry_while_busy(lambda: self._connection.execute(query, values).fetchall(), self.path)

    def examine(self) -> list[str]:
        """Check every page and every record, and note the damage; returns the runs that lack records."""
        self._check_table(_ALL_TABLES)
        from deputy.journal.sqlite.file_repair import check_integrity

        with typed(self.path):
            return retry_while_busy(lambda: check_integrity(self._connection, self._damage), self.path)

    def _check_table(self, table: str) -> None:
        """Raise StorageCorrupt for a table that is damaged, or whose indexes miss rows."""
        found = str(self._rows(f"PRAGMA integrity_check({table})")[0][0])
        if found != "ok":
            part = "a table" if table == _ALL_TABLES else f"the table {table}"
            raise StorageCorrupt(str(self.path), f"{part} or one of its indexes is damaged ({found.splitlines()[-1]})")
