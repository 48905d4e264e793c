"""The Queries port over SQL tables: it verifies every checksum."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import json

from deputy.core.errors import StorageCorrupt
from deputy.core.events import AdmissionRefused, Record, Returned
from deputy.core.state import State, apply
from deputy.engine.ports.queries import (
    FOLLOW_LIMIT,
    Changes,
    Cursor,
    DamagedRecord,
    LeaseHolder,
    LoggedErrorRow,
    ProgressEvent,
    RecordHead,
)
from deputy.journal import error_log
from deputy.journal.sql.rows import (
    EVENT_UNDER_KEY,
    EVENTS_AFTER,
    NO_LIMIT,
    Row,
    read_event,
    read_state,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from types import TracebackType
    from typing import Self

    from deputy.core.outcome import Outcome

STALE_SECONDS = 15.0
"""A process without a heartbeat for this long counts as dead."""

_PAGE = 256
# Quotes within a text are escaped, so only the status itself matches. A state without a known status may be damaged.
_BLOCKED = """
SELECT run, state, sum FROM runs WHERE NOT is_live AND (
    instr(state, CAST('"status":"blocked"' AS BLOB))
    OR NOT instr(state, CAST('"status":"completed"' AS BLOB))
    AND NOT instr(state, CAST('"status":"partial"' AS BLOB))
    AND NOT instr(state, CAST('"status":"failed"' AS BLOB))
    AND NOT instr(state, CAST('"status":"cancelled"' AS BLOB))
    AND NOT instr(state, CAST('"status":"rejected"' AS BLOB))
)
"""
_NEW_RECORDS = "SELECT id, run, seq, at, kind, length(body) FROM events WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
_NEW_PROGRESS = "SELECT id, run, at, body FROM progress WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"


class JournalDamage:
    """The damaged rows found so far."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def note(self, where: str, what: str) -> None:
        """Remember a damaged row."""
        self._found.setdefault(where, what)

    def note_state(self, run: str) -> None:
        """Remember that the stored state of a run is damaged."""
        self.note(f"the state of {run!r}", "its checksum does not fit")

    @property
    def description(self) -> str:
        """All of it in one line; empty when nothing is damaged."""
        if not self._found:
            return ""
        (where, what), *others = self._found.items()
        more = f", and {len(others)} more damaged place{'s' * (len(others) > 1)}" if others else ""
        return f"{where}: {what}{more}"


class SqlQueries:
    """A view of the journal through one connection; a store overrides how it is reached."""

    _age_column = "last_at"
    """When an ended run ended, in an index."""

    def __init__(self, location: str, store_name: str) -> None:
        self.location = location
        self.store_name = store_name
        """What tells this store from others."""
        self._damage = JournalDamage()
        self._live: dict[str, tuple[bytes, State]] = {}
        """The live runs as last read: a command reads them several times, and decodes only those that have changed."""

    @property
    def damage(self) -> str:
        """The damaged rows found so far, in one line; empty when there are none."""
        return self._damage.description

    def note_damage(self, where: str, what: str) -> None:
        """Remember a damaged row."""
        self._damage.note(where, what)

    def now(self) -> float:
        """The time by the journal's clock."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection."""
        raise NotImplementedError

    def blocked(self) -> list[State]:
        """The runs that ended with an open question, oldest first."""
        return [state for state in self._states(_BLOCKED) if state.status == "blocked"]

    def holders(self, runs: Collection[str] | None = None) -> dict[str, LeaseHolder]:
        """The processes that hold the leases of these runs, or of all, by run."""
        raise NotImplementedError

    def cursor(self) -> Cursor:
        """The present end of the journal."""
        raise NotImplementedError

    def examine(self) -> list[str]:
        """Check every record and note the damage; returns the runs that lack records."""
        raise NotImplementedError

    def _rows(self, query: str, *values: Any) -> list[Any]:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- runs ---------------------------------------------------------------------------------------------------------

    def knows(self, run: str) -> bool:
        """Whether there is a run of this id."""
        return bool(self._rows("SELECT 1 FROM runs WHERE run = ?", run))

    def state(self, run: str) -> State | None:
        """The state of a run; None when there is no such run."""
        rows = self._rows("SELECT run, state, sum FROM runs WHERE run = ?", run)
        return self._state(*rows[0]) if rows else None

    def live(self) -> list[State]:
        """The runs that have not ended, oldest first."""
        rows = self._rows("SELECT run, state, sum FROM runs WHERE is_live")
        found = [(body, state) for run, body, total in rows if (state := self._state(run, body, total)) is not None]
        self._live = {state.run: (body, state) for body, state in found}
        return sorted((state for _, state in found), key=age)

    def live_count(self) -> int:
        """How many runs have not ended."""
        return self._rows("SELECT count(*) FROM runs WHERE is_live")[0][0]

    def tree(self, root: str) -> list[State]:
        """All runs of a root session, oldest first."""
        return self._states("SELECT run, state, sum FROM runs WHERE root = ?", root)

    def unsettled(self) -> list[State]:
        """The runs that are live or undelivered, oldest first."""
        return self._states("SELECT run, state, sum FROM runs WHERE NOT is_settled")

    def unsettled_besides(self, active: Collection[str], owner: str) -> list[State]:
        """The same without the active runs of this owner, whose states are not read."""
        if not active:
            return self.unsettled()
        rows = self._rows(
            "SELECT runs.run, leases.owner FROM runs LEFT JOIN leases ON leases.run = runs.run WHERE NOT is_settled"
        )
        others = (self.state(run) for run, holder in rows if holder != owner or run not in active)
        return sorted((state for state in others if state is not None), key=age)

    def due(self, active: Collection[str], owner: str, parked: Collection[str], now: float) -> list[State]:
        """The same with the parked runs that have ended; a store may leave out what waits for a person until later."""
        found = self.unsettled_besides(active, owner)
        gone = map(self.state, set(parked) - {state.run for state in found})
        return [*found, *(state for state in gone if state is not None and not state.is_live)]

    def nested(self, root: str) -> list[tuple[str, str, bytes]]:
        """The nested runs of a tree: id, the run that started it, and its reservation."""
        return list(self._rows("SELECT id, above, body FROM nested WHERE root = ?", root))

    def descendants(self, run: str) -> list[State]:
        """All runs below a run, oldest first."""
        return self._states(
            "WITH RECURSIVE below (run) AS (SELECT run FROM runs WHERE parent = ?"
            " UNION SELECT r.run FROM runs r JOIN below b ON r.parent = b.run)"
            " SELECT run, state, sum FROM runs JOIN below USING (run)",
            run,
        )

    def children(self, run: str) -> list[State]:
        """The runs that a run spawned, oldest first."""
        return self._states("SELECT run, state, sum FROM runs WHERE parent = ?", run)

    def ended(self, limit: int) -> list[State]:
        """The runs that ended last, oldest first."""
        query = f"SELECT run, state, sum FROM runs WHERE NOT is_live ORDER BY {self._age_column} DESC LIMIT ?"  # noqa: S608
        return self._states(query, limit)

    def ended_owners(self) -> list[str]:
        """The processes that have ended, but still have a heartbeat."""
        raise NotImplementedError

    def old_roots(self, before: float) -> list[str]:
        """The roots of runs that ended before this time."""
        query = f"SELECT DISTINCT root FROM runs WHERE NOT is_live AND {self._age_column} < ?"  # noqa: S608
        return [row[0] for row in self._rows(query, before)]

    def ids(self) -> list[str]:
        """The ids of all runs."""
        return [row[0] for row in self._rows("SELECT run FROM runs")]

    def labelled(self, label: str) -> list[State]:
        """The runs with this label, oldest first."""
        part = b'"label":' + json.encode(label)
        found = self._states("SELECT run, state, sum FROM runs WHERE instr(state, ?)", part)
        return [state for state in found if state.label == label]

    def pinned(self) -> set[str]:
        """The pinned runs."""
        return {row[0] for row in self._rows("SELECT run FROM pins")}

    # --- records ------------------------------------------------------------------------------------------------------

    def get(self, run: str, key: str) -> Record | DamagedRecord | None:
        """The record of a run under a key."""
        rows = self._rows(EVENT_UNDER_KEY, run, key)
        return self._trusted(read_event(rows[0]), run) if rows else None

    def outcome(self, state: State) -> Outcome | None:
        """The outcome of a run's last round; None when it is live, or the record is damaged."""
        if state.is_live:
            return None
        key = f"returned:{state.round}"
        record = self.get(state.run, key)
        if isinstance(record, Record) and isinstance(record.event, Returned | AdmissionRefused):
            return record.event.outcome
        if record is None and self.knows(state.run):
            self._lost(f"{state.run!r} record {key!r}", "it is missing")
        return None

    def records(self, run: str, after: int = 0, limit: int | None = None) -> Iterator[Record | DamagedRecord]:
        """The records of a run with `limit` seqs after one, in order; DamagedRecords for damaged or missing ones."""
        expected = after + 1
        end = NO_LIMIT if limit is None else after + limit
        last = min(self._last(run), end)
        for row in self._pages(run, after, limit):
            record = self._trusted(read_event(row), run)
            # The number of a damaged row may be damaged too.
            seq = record.seq if isinstance(record, Record) else whole_number(row[1], 0)
            if isinstance(record, Record) and seq > end:
                break
            if seq > expected and isinstance(record, Record):
                yield self._missing(run, expected, seq - 1)
            yield record
            expected = seq + 1 if seq == expected or isinstance(record, Record) else expected
        if expected <= last and self.knows(run):
            yield self._missing(run, expected, last)

    def _trusted(self, record: Record | DamagedRecord, run: str) -> Record | DamagedRecord:
        """The record, if it is one of this run; damage is noted."""
        if isinstance(record, DamagedRecord):
            return self._lost(record.where, record.what)
        # A damaged index may lead to a row of another run.
        return record if record.run == run else self._lost(f"{run!r}", f"an index leads to a record of {record.run!r}")

    def _missing(self, run: str, first: int, last: int) -> DamagedRecord:
        return self._lost(f"{run!r} records {first} to {last}", "they are missing")

    def _lost(self, where: str, what: str) -> DamagedRecord:
        self.note_damage(where, what)
        return DamagedRecord(where=where, what=what)

    def addressed(self) -> list[tuple[str, str]]:
        """The live runs with untaken messages, and their topics."""
        query = "SELECT DISTINCT i.run, i.topic FROM inbox i JOIN runs r USING (run) WHERE NOT i.is_taken AND r.is_live"
        return self._rows(query)

    def progress(self, run: str) -> list[ProgressEvent]:
        """The latest progress events of a run, oldest first."""
        rows = self._rows("SELECT id, run, at, body FROM progress WHERE run = ? ORDER BY id", run)
        return [ProgressEvent(*row) for row in rows]

    def recent_progress(self, limit: int) -> list[ProgressEvent]:
        """The latest progress events of all runs, oldest first."""
        rows = self._rows("SELECT id, run, at, body FROM progress ORDER BY id DESC LIMIT ?", limit)
        return [ProgressEvent(*row) for row in reversed(rows)]

    def errors(self, limit: int) -> list[LoggedErrorRow]:
        """The latest errors of the error log, newest first; a damaged row is left out and noted."""
        rows = self._rows(
            "SELECT id, first_at, last_at, count, body, sum FROM errors ORDER BY last_at DESC LIMIT ?", limit
        )
        logged: list[LoggedErrorRow] = []
        for row in rows:
            found = error_log.read_row(row)
            if found is None:
                self.note_damage(f"error {row[0]!r}", "its checksum does not fit")
            else:
                logged.append(found)
        return logged

    # --- changes ------------------------------------------------------------------------------------------------------

    def follow(self, cursor: Cursor, limit: int = FOLLOW_LIMIT) -> Changes:
        """Everything that changed since a cursor, up to a limit."""
        raise NotImplementedError

    def _changes_between(self, cursor: Cursor, end: Cursor, limit: int) -> Changes:
        """What is after a cursor up to an end, which must stay as it is meanwhile."""
        # Without a removal a number that went back means that the file lost its end.
        if end.generation != cursor.generation or end.record < cursor.record or end.progress < cursor.progress:
            return Changes(cursor=end, is_reset=True)
        rows = self._rows(_NEW_RECORDS, cursor.record, end.record, limit) if end.record > cursor.record else []
        heads = tuple(RecordHead(*row[1:]) for row in rows)
        runs = tuple(self._states_of({head.run for head in heads}))
        if len(rows) == limit:
            return Changes(cursor=cursor._replace(record=rows[-1][0]), runs=runs, records=heads, has_more=True)
        shown = tuple(ProgressEvent(*row) for row in self._rows(_NEW_PROGRESS, cursor.progress, end.progress, limit))
        is_full = len(shown) == limit
        position = end._replace(progress=shown[-1].number) if is_full else end
        return Changes(cursor=position, runs=runs, records=heads, progress=shown, has_more=is_full)

    # --- how ----------------------------------------------------------------------------------------------------------

    def _pages(self, run: str, after: int, limit: int | None) -> Iterator[Row]:
        # Page by page, so that a slow reader keeps no old snapshot open.
        left = NO_LIMIT if limit is None else limit
        while left > 0:
            size = min(_PAGE, left)
            page = self._rows(EVENTS_AFTER, run, after, size)
            yield from page
            if len(page) < size:
                return
            left -= size
            before, after = after, whole_number(page[-1][1], 0)
            if after <= before:
                raise StorageCorrupt(self.location, f"the index of the records of {run!r} is damaged")

    def _last(self, run: str) -> int:
        """The number of a run's last record, from its state or, if that is damaged, from its records."""
        rows = self._rows("SELECT state, sum FROM runs WHERE run = ?", run)
        state = read_state(rows[0]) if rows else None
        if state is not None:
            return state.seq
        if rows:
            self._damage.note_state(run)
        return whole_number(self._rows("SELECT max(seq) FROM events WHERE run = ?", run)[0][0], 0)

    def _states_of(self, runs: Collection[str]) -> list[State]:
        """The states of these runs, oldest first."""
        return sorted((state for run in runs if (state := self.state(run)) is not None), key=age)

    def _states(self, query: str, *values: Any) -> list[State]:
        states = (self._state(*row) for row in self._rows(query, *values))
        return sorted((state for state in states if state is not None), key=age)

    def _state(self, run: str, body: bytes, total: bytes) -> State | None:
        known = self._live.get(run)
        if known is not None and known[0] == body:
            return known[1]
        state = read_state((body, total))
        if state is not None and state.run == run:
            return state
        self._damage.note_state(run)
        return self.fold(run)

    def fold(self, run: str) -> State | None:
        """The state of a run from its records alone."""
        state = State()
        for record in self.records(run):
            if not isinstance(record, DamagedRecord):
                state = apply(state, record)
        return state if state.seq else None


age = attrgetter("requested_at", "run")
"""The order in which runs began."""
