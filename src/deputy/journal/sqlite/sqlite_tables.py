"""The tables of the journal on a SQLite connection."""

from __future__ import annotations

import time
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from deputy.journal.process_identity import has_ended as has_process_ended
from deputy.journal.sql.rows import LeaseRow

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from deputy.core.events import Moment
    from deputy.journal.sql.rows import Row
    from deputy.journal.sql.sql_store import Bulk
    from deputy.journal.sqlite.sqlite_queries import SqliteQueries

EVENTS = "SELECT run, seq, key, at, clock, kind, body, sum FROM events NOT INDEXED"
LAST_EVENT = f"{EVENTS} ORDER BY id DESC LIMIT 1"
_ADD_EVENT = (
    "INSERT INTO events (run, seq, key, at, clock, kind, body, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (run, key) DO NOTHING"
)
_HOLDER = "SELECT l.owner, l.epoch, o.beat FROM leases l LEFT JOIN owners o USING (owner) WHERE l.run = ?"
_GRANT = (
    "INSERT INTO leases (run, owner, epoch) VALUES (?, ?, ?)"
    " ON CONFLICT (run) DO UPDATE SET owner = excluded.owner, epoch = excluded.epoch"
)


class BulkStatement(Struct, frozen=True, gc=False):
    """A statement over many rows."""

    before: str
    row: str
    after: str = ""


PUT_RUNS = BulkStatement(
    "INSERT INTO runs (last_at, state, sum, run, parent, root, is_live, is_settled) VALUES ",
    "(?, ?, ?, ?, ?, ?, ?, ?)",
    " ON CONFLICT (run) DO UPDATE SET last_at = excluded.last_at, state = excluded.state, sum = excluded.sum,"
    " is_live = excluded.is_live, is_settled = excluded.is_settled",
)
_STATEMENTS: dict[Bulk, BulkStatement] = {
    "events": BulkStatement(
        "INSERT INTO events (run, seq, key, at, clock, kind, body, sum) VALUES ", "(?, ?, ?, ?, ?, ?, ?, ?)"
    ),
    "progress": BulkStatement("INSERT OR REPLACE INTO progress (run, slot, at, body) VALUES ", "(?, ?, ?, ?)"),
    "runs": PUT_RUNS,
    "states": BulkStatement(
        "WITH changed (last_at, state, sum, run) AS (VALUES ",
        "(?, ?, ?, ?)",
        ") UPDATE runs SET last_at = changed.last_at, state = changed.state, sum = changed.sum FROM changed"
        " WHERE runs.run = changed.run",
    ),
    "leases": BulkStatement("INSERT INTO leases VALUES ", "(?, ?, ?)"),
    "released": BulkStatement(
        "WITH ended (run, epoch, owner) AS (VALUES ",
        "(?, ?, ?)",
        ") UPDATE leases SET owner = NULL FROM ended"
        " WHERE leases.run = ended.run AND leases.epoch = ended.epoch AND leases.owner = ended.owner",
    ),
}
_AT_ONCE = (256, 64, 8, 1)
"""Rows per statement; few sizes, so that each is prepared once."""


def execute(connection: sqlite3.Connection, many: BulkStatement, rows: Sequence[Row]) -> None:
    """Execute a statement over all rows in few calls: each call releases the GIL."""
    at = 0
    for size in _AT_ONCE:
        while len(rows) - at >= size:
            connection.execute(_statement(many, size), tuple(chain.from_iterable(rows[at : at + size])))
            at += size


@cache
def _statement(many: BulkStatement, size: int) -> str:
    return f"{many.before}{', '.join([many.row] * size)}{many.after}"


class SqliteTables:
    """The tables within a transaction, which locks the whole file."""

    def __init__(self, connection: sqlite3.Connection, path: str, stale_seconds: float) -> None:
        self.connection = connection
        self.execute = connection.execute
        self._path = path
        self._stale_seconds = stale_seconds

    def put(self, what: Bulk, rows: Sequence[Row]) -> None:
        """Write many rows of one kind."""
        execute(self.connection, _STATEMENTS[what], rows)

    def add_event(self, row: Row) -> bool:
        """Add a record unless its key exists; whether it was added."""
        return bool(self.connection.execute(_ADD_EVENT, row).rowcount)

    def serialize(self, what: str) -> None:
        """Nothing: the file has one writer at a time."""

    def holds(self, run: str, epoch: int, owner: str) -> bool:
        """Whether a process holds this lease."""
        query = "SELECT 1 FROM leases WHERE run = ? AND epoch = ? AND owner = ?"
        return self.connection.execute(query, (run, epoch, owner)).fetchone() is not None

    def holder(self, run: str) -> LeaseRow | None:
        """The lease of a run."""
        row: Any = self.connection.execute(_HOLDER, (run,)).fetchone()
        if row is None:
            return None
        owner, epoch, beat = row
        is_silent = not owner or beat is None or time.monotonic() - beat > self._stale_seconds
        return LeaseRow(owner or "", epoch, is_silent or has_process_ended(owner))

    def grant(self, run: str, owner: str, epoch: int) -> None:
        """Write the lease of a run."""
        self.connection.execute(_GRANT, (run, owner, epoch))

    def announce(self, runs: Sequence[str], callers: Sequence[str]) -> None:
        """Nothing: other processes notice every commit to the file."""

    def has_ended(self, owner: str) -> bool:
        """Whether a process has certainly ended."""
        return has_process_ended(owner)

    def moment(self) -> Moment:
        """The current time by both clocks; starts the journal's clock after a reboot."""
        from deputy.journal.clock import start_clock

        return start_clock(self.connection).moment()

    def queries(self) -> SqliteQueries:
        """The queries over these tables."""
        from deputy.journal.sqlite.sqlite_queries import SqliteQueries

        return SqliteQueries(self.connection, Path(self._path), self._stale_seconds)
