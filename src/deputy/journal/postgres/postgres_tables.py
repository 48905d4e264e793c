"""The tables of the journal on a Postgres connection."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from deputy.core.events import Moment
from deputy.journal.sql.rows import LeaseRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.journal.postgres.postgres_queries import PostgresQueries
    from deputy.journal.postgres.store_address import PostgresSession
    from deputy.journal.sql.rows import Row
    from deputy.journal.sql.sql_store import Bulk

COLUMNS: Final[dict[Bulk, int]] = {
    "events": 8,
    "leases": 3,
    "placed": 2,
    "runs": 8,
    "states": 4,
    "released": 3,
    "progress": 4,
}
"""The columns of what is written in bulk, in the order of `commit_batch`."""
_PUT: Final[dict[Bulk, str]] = {
    name: f"SELECT put_{name}({', '.join(f'${at}' for at in range(1, count + 1 + (name in ('events', 'progress'))))})"
    for name, count in COLUMNS.items()
}
_ADD_EVENT = (
    "INSERT INTO events (id, run, seq, key, at, clock, kind, body, sum)"
    " VALUES (first_position() + $1::integer, $2, $3, $4, $5, $6, $7, $8, $9)"
    " ON CONFLICT (run, key) DO NOTHING RETURNING 1"
)
_HOLDER = (
    "SELECT l.owner, l.epoch, (SELECT extract(epoch FROM clock_timestamp() - o.beat)::float8 FROM owners o"
    " WHERE o.owner = l.owner), l.queue FROM leases l WHERE l.run = $1 FOR UPDATE"
)
_GRANT = (
    "INSERT INTO leases (run, owner, epoch) VALUES ($1, $2, $3) ON CONFLICT (run) DO UPDATE"
    " SET owner = excluded.owner, epoch = excluded.epoch, is_placed = false, is_parked = false, awaits = '{}'"
)
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"


@cache
def translated(query: str) -> str:
    """A statement with `?` for its values, as Postgres writes them."""
    numbers = iter(range(1, 1000))
    return re.sub(r"\?(\d*)", lambda found: f"${found[1] or next(numbers)}", query)


def columns(what: Bulk, rows: Sequence[Row]) -> list[list[Any]]:
    """The rows as one list per column."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(COLUMNS[what])]


class FetchedRows:
    """The rows of a statement."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = rows

    def fetchone(self) -> Any:
        """The first row; None when there is none."""
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[Any]:
        """All rows."""
        return self._rows


class PostgresTables:
    """The tables within a transaction."""

    def __init__(self, session: PostgresSession, stale_seconds: float) -> None:
        self._session = session
        self._stale_seconds = stale_seconds
        self._places = {"events": 0, "progress": 0}
        """How many positions of this transaction are in use."""

    def execute(self, query: str, values: Sequence[Any] = (), /) -> FetchedRows:
        """Execute a statement."""
        return FetchedRows(self._session.fetch(translated(query), *values))

    def put(self, what: Bulk, rows: Sequence[Row]) -> None:
        """Write many rows of one kind."""
        if what in self._places:
            before, self._places[what] = self._places[what], self._places[what] + len(rows)
            self._session.fetch(_PUT[what], before, *columns(what, rows))
        else:
            self._session.fetch(_PUT[what], *columns(what, rows))

    def add_event(self, row: Row) -> bool:
        """Add a record unless its key exists; whether it was added."""
        self._places["events"] += 1
        return bool(self._session.fetch(_ADD_EVENT, self._places["events"], *row))

    def serialize(self, what: str) -> None:
        """Wait for other transactions that name this."""
        self._session.fetch("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"deputy {what}")

    def holds(self, run: str, epoch: int, owner: str) -> bool:
        """Whether a process holds this lease, whose row is locked."""
        query = "SELECT 1 FROM leases WHERE run = $1 AND epoch = $2 AND owner = $3 FOR UPDATE"
        return bool(self._session.fetch(query, run, epoch, owner))

    def holder(self, run: str) -> LeaseRow | None:
        """The lease of a run, whose row is locked."""
        rows = self._session.fetch(_HOLDER, run)
        if not rows:
            return None
        owner, epoch, silence, queue = rows[0]
        return LeaseRow(owner or "", epoch, silence is None or silence > self._stale_seconds, queue or "")

    def grant(self, run: str, owner: str, epoch: int) -> None:
        """Write the lease of a run; what it was placed or parked for is over."""
        self._session.fetch(_GRANT, run, owner, epoch)

    def announce(self, runs: Sequence[str], callers: Sequence[str]) -> None:
        """Tell other processes which runs ended or got a message, and place those that were parked for it."""
        self._session.fetch("SELECT announce($1, $2)", runs, callers)

    def has_ended(self, owner: str) -> bool:
        """Not known: a process may be on another machine, and its heartbeat ends with its last lease."""
        return False

    def moment(self) -> Moment:
        """The current time by the clock of the database."""
        now: float = self._session.fetch(NOW)[0][0]
        return Moment(now, now)

    def queries(self) -> PostgresQueries:
        """The queries over these tables, with the rows of this transaction."""
        from deputy.journal.postgres.postgres_queries import PostgresQueries

        return PostgresQueries(self._session, self._stale_seconds)
