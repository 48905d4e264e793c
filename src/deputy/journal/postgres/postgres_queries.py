"""The Queries port over a Postgres store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from deputy.core.errors import StorageError
from deputy.core.queue_names import queue_of
from deputy.core.state import State
from deputy.engine.ports.queries import FOLLOW_LIMIT, Changes, Cursor, DamagedRecord, LeaseHolder
from deputy.engine.recover import waits_until
from deputy.journal.postgres import postgres_schema
from deputy.journal.postgres.postgres_tables import NOW, translated
from deputy.journal.postgres.store_address import PostgresSession, is_away, storage_error
from deputy.journal.process_identity import ProcessIdentity, boot_id, has_ended, pid_in
from deputy.journal.sql.sql_queries import STALE_SECONDS, SqlQueries, age

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from deputy.journal.postgres.store_address import StoreAddress

_HOLDERS = (
    "SELECT l.run, l.owner, extract(epoch FROM clock_timestamp() - o.beat)::float8, o.host, l.queue, false"
    " FROM leases l LEFT JOIN owners o USING (owner) WHERE l.owner IS NOT NULL{0}"
    " UNION ALL SELECT l.run, '', 0, '', l.queue, l.is_placed FROM leases l JOIN runs r USING (run)"
    " WHERE r.is_live AND l.owner IS NULL AND l.queue IS NOT NULL{0}"
)
_ALL_HOLDERS, _HOLDERS_OF = _HOLDERS.format(""), _HOLDERS.format(" AND l.run = ANY (?1)")
_WORKERS = (
    "SELECT owner, host, version, labels, slots, draining, extract(epoch FROM clock_timestamp() - beat)::float8,"
    " (SELECT count(*) FROM leases l WHERE l.owner = owners.owner), clock_offset, keys FROM owners"
    " WHERE slots > 0 AND beat >= clock_timestamp() - ?::float8 * interval '1 s' ORDER BY host, owner"
)
_ENDED_OWNERS = (
    "SELECT owner FROM owners WHERE beat < clock_timestamp() - interval '1 day'"
    " AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.owner = owners.owner)"
)
_PROCESSES = (
    "SELECT o.host, o.owner, o.version, l.held, extract(epoch FROM clock_timestamp() - o.beat)::float8 FROM owners o,"
    " LATERAL (SELECT count(*) AS held FROM leases WHERE owner = o.owner) l"
    " WHERE l.held > 0 OR o.beat > clock_timestamp() - interval '30 s' ORDER BY o.host, o.owner"
)
_PAUSE_SECONDS = 0.2


_UNSETTLED = "SELECT r.run, l.owner, r.sum FROM runs r LEFT JOIN leases l USING (run) WHERE NOT r.is_settled"
_READ_AT_ONCE = 500


class WorkerRow(NamedTuple):
    """A worker as the others see it."""

    owner: str
    host: str
    version: str
    labels: list[str]
    slots: int
    is_draining: bool
    silent_seconds: float
    held: int
    """How many runs it holds."""
    clock_offset_seconds: float
    """How far the clock of its machine is ahead of the database's."""
    keys: list[str]
    """The names of its provider keys."""


class PostgresQueries(SqlQueries):
    """A view of the journal through one connection, which is made again when it is lost."""

    _age_column = "ended_at"

    def __init__(
        self,
        session: PostgresSession,
        stale_seconds: float = STALE_SECONDS,
        *,
        max_wait_seconds: float = 0.0,
        trusts_silence: Callable[[], bool] = lambda: True,
        is_closing: Callable[[], bool] = lambda: False,
    ) -> None:
        """`max_wait_seconds`: how long to try again, unless `is_closing`.

        `trusts_silence`: whether a silent process counts as dead.
        """
        super().__init__(session.address.location, session.address.location)
        self._session = session
        self._stale_seconds = stale_seconds
        self._max_wait_seconds = max_wait_seconds
        self._trusts_silence = trusts_silence
        self._is_closing = is_closing
        self._seen: dict[str, tuple[bytes, State | float]] = {}
        """The unsettled runs of others by `due`, with the checksums of their states.

        Of a run that waits for a person only the time until which it may: there may be very many of them.
        """

    @classmethod
    def open(cls, address: StoreAddress, **options: Any) -> PostgresQueries:
        """Open the store, and refuse tables of another version."""
        session = PostgresSession(address)
        try:
            postgres_schema.check(session)
        except BaseException:
            session.close()
            raise
        return cls(session, **options)

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def now(self) -> float:
        """The time by the clock of the database."""
        return self._rows(NOW)[0][0]

    def ended_owners(self) -> list[str]:
        """The processes that were silent for a day and hold nothing."""
        return [row[0] for row in self._rows(_ENDED_OWNERS)]

    def holders(self, runs: Collection[str] | None = None) -> dict[str, LeaseHolder]:
        """The processes that hold leases, by run; whether they live is judged by the clock of the database."""
        is_trusted = self._trusts_silence()
        here = boot_id()
        found: dict[str, LeaseHolder] = {}
        rows = self._rows(_ALL_HOLDERS) if runs is None else self._rows(_HOLDERS_OF, list(runs))
        served = self._served() if any(is_queued for *_, is_queued in rows) else set[str]()
        for run, owner, silence, host, queue, is_queued in rows:
            is_silent = silence is not None and silence > self._stale_seconds
            is_gone = silence is None or (is_silent and _is_of(owner, here) and has_ended(owner))
            found[run] = LeaseHolder(
                owner=owner,
                is_gone=is_gone,
                is_silent=is_silent and is_trusted,
                host=host or "",
                queue=queue or "",
                is_queued=is_queued,
                is_served=not is_queued or queue in served,
            )
        return found

    def accounts(self, runs: Sequence[str]) -> list[tuple[str, bytes]]:
        """The accounts of these runs, as JSON."""
        return self._rows("SELECT run, account FROM budgets WHERE run = ANY(?)", list(runs))

    def workers(self) -> list[WorkerRow]:
        """The workers that have sent a heartbeat lately."""
        return [WorkerRow(*row) for row in self._rows(_WORKERS, self._stale_seconds)]

    def _served(self) -> set[str]:
        """The queues of workers that take runs."""
        return {
            queue_of(label) for worker in self.workers() if not worker.is_draining for label in worker.labels or [""]
        }

    def version(self) -> int:
        """The version of the tables."""
        return self._rows("SELECT version FROM schema_version")[0][0]

    def totals(self) -> tuple[int, int, int]:
        """The number of runs, of live ones, and the bytes of the database."""
        query = "SELECT count(*), count(*) FILTER (WHERE is_live), pg_database_size(current_database()) FROM runs"
        return self._rows(query)[0]

    def processes(self) -> list[tuple[str, str, str, int, float]]:
        """The processes with a heartbeat: host, process id, version, runs held, seconds of silence."""
        return [(host, pid_in(owner), *rest) for host, owner, *rest in self._rows(_PROCESSES)]

    def cursor(self) -> Cursor:
        """The end up to which no further record can appear."""
        number, horizon = self._rows("SELECT number, horizon() FROM generation")[0]
        position = (horizon << 20) - 1
        return Cursor(number, position, position)

    def follow(self, cursor: Cursor, limit: int = FOLLOW_LIMIT) -> Changes:
        """Everything that changed since a cursor, up to a limit."""
        # The rows are read after the end is known, so that they are all there.
        return self._changes_between(cursor, self.cursor(), limit)

    def examine(self) -> list[str]:
        """Check every record and note the damage; returns the runs that lack records."""
        lacking: list[str] = []
        for run in self.ids():
            self.state(run)
            if any(isinstance(record, DamagedRecord) for record in self.records(run)):
                lacking.append(run)
        return lacking

    def unsettled_besides(self, active: Collection[str], owner: str) -> list[State]:
        """The unsettled runs without the active ones of this owner, oldest first."""
        return sorted(self._states_of(self._others(active, owner)), key=age)

    def due(self, active: Collection[str], owner: str, parked: Collection[str], now: float) -> list[State]:
        """The same without runs that wait for a person until later, and with the parked ones that have ended.

        Only states that changed are read again.
        """
        sums = self._others(active, owner)
        seen = {run: one for run, one in self._seen.items() if sums.get(run) == one[0]}
        wanted = [run for run in sums if run not in seen or _is_over(seen[run][1], now)]
        for begin in range(0, len(wanted), _READ_AT_ONCE):
            for state in self._states_of(wanted[begin : begin + _READ_AT_ONCE]):
                until = waits_until(state)
                seen[state.run] = (sums[state.run], state if until is None or until <= now else until)
        self._seen = seen
        found = [one for _, one in seen.values() if isinstance(one, State)]
        gone = self._states_of([run for run in parked if run not in sums])
        return sorted((*found, *(state for state in gone if not state.is_live)), key=age)

    def _others(self, active: Collection[str], owner: str) -> dict[str, bytes]:
        """The checksums of the states of unsettled runs, without the active ones of this owner."""
        return {run: total for run, holder, total in self._rows(_UNSETTLED) if holder != owner or run not in active}

    def _states_of(self, runs: Collection[str]) -> list[State]:
        """The states of these runs in one answer, oldest first."""
        return self._states("SELECT run, state, sum FROM runs WHERE run = ANY(?)", list(runs)) if runs else []

    def _rows(self, query: str, *values: Any) -> list[Any]:
        # No text can have a zero byte, and Postgres cannot even look for one; no id has the other sign either.
        values = tuple(value.replace("\0", "\1") if isinstance(value, str) else value for value in values)
        until = time.monotonic() + self._max_wait_seconds
        while True:
            try:
                if self._session.is_closed:
                    self._session.drop()
                    self._session = PostgresSession(self._session.address)
                return self._session.fetch(translated(query), *values)
            except Exception as error:
                if not is_away(error) or time.monotonic() >= until or self._is_closing():
                    if isinstance(error, StorageError):
                        raise
                    raise storage_error(self._session.address, error) from error
            self._session.drop()
            time.sleep(_PAUSE_SECONDS)


def _is_over(seen: State | float, now: float) -> bool:
    return not isinstance(seen, State) and seen <= now


def _is_of(owner: str, boot: str) -> bool:
    """Whether a process is of this boot of this machine."""
    identity = ProcessIdentity.named(owner)
    return identity is not None and identity.boot == boot
