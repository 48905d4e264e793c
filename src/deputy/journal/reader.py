"""Reading the journal: synchronous, never in a writer's way, and never trusting a damaged byte."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from deputy.core.errors import StorageCorrupt
from deputy.core.events import Record
from deputy.core.state import State, apply, replay
from deputy.journal import home
from deputy.journal.clock import read_clock
from deputy.journal.connection import BROKEN, open_reader, patiently, typed
from deputy.journal.examining import LISTED, Damage, examine
from deputy.journal.mark import Promise, read_mark
from deputy.journal.owner import Owner, is_gone
from deputy.journal.readable import readable
from deputy.journal.rows import (
    EVENT_UNDER_KEY,
    EVENTS_AFTER,
    HOLDER,
    Damaged,
    Row,
    is_whole_state,
    read_event,
    read_state,
    whole_number,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

STALE_SECONDS = 15.0
"""A process that shows no sign of life for so long may be taken for dead."""

_PAGE = 256
_ALL_TABLES = "1"
"""SQLite takes a number for how many problems to name, of any table: the first is enough."""
# A text in a state has its quotes escaped, so that only the status itself is found. Where none is found as it should
# be, the state may be damaged; checksums of all of them would cost more than everything else.
_BLOCKED = """
SELECT run, state, sum FROM runs WHERE NOT is_live AND (
    instr(state, CAST('"status":"blocked"' AS BLOB))
    OR NOT instr(state, CAST('"status":"completed"' AS BLOB))
    AND NOT instr(state, CAST('"status":"partial"' AS BLOB))
    AND NOT instr(state, CAST('"status":"failed"' AS BLOB))
    AND NOT instr(state, CAST('"status":"cancelled"' AS BLOB))
    AND NOT instr(state, CAST('"status":"rejected"' AS BLOB))
    AND NOT is_whole(state, sum)
)
"""

_PROBES = (
    "SELECT id, run, seq, key, at, clock, kind, body, sum FROM events LIMIT 0",
    "SELECT run, parent, root, is_live, is_settled, last_at, state, sum FROM runs LIMIT 0",
    "SELECT l.run, l.owner, l.epoch, o.beat FROM leases l LEFT JOIN owners o USING (owner) LIMIT 0",
    "SELECT run, topic, is_taken FROM inbox LIMIT 0",
    "SELECT run, n, at, body FROM progress LIMIT 0",
    "SELECT boot, offset FROM clocks LIMIT 0",
    "SELECT p.run, e.id, e.first_at, e.last_at, e.count, e.body, e.sum FROM pins p, errors e LIMIT 0",
    # These read pages: of tables that are gone, nothing to list must not look like nothing there.
    "SELECT count(*) FROM runs",
    "SELECT count(*) FROM leases",
    "SELECT max(id) FROM events",
)


class Holder(Struct, frozen=True, kw_only=True):
    """Who has the lease of a run, and when it last gave a sign of life."""

    owner: str
    epoch: int
    beat: float | None

    @property
    def pid(self) -> str:
        """The process as people know it."""
        owner = Owner.named(self.owner)
        return "unknown" if owner is None else str(owner.pid)

    @property
    def is_gone(self) -> bool:
        """Whether there is a process, and it surely does not run any more."""
        owner = Owner.named(self.owner)
        return owner is not None and is_gone(owner)

    def is_left(self, now: float, stale_seconds: float = STALE_SECONDS) -> bool:
        """Whether nobody is at work any more: the process is gone, or silent for too long."""
        if not self.owner or self.beat is None:
            return True
        owner = Owner.named(self.owner)
        return owner is None or is_gone(owner) or now - self.beat > stale_seconds


class Reader:
    """A view of the journal through one connection that only reads."""

    def __init__(self, connection: sqlite3.Connection, path: Path, damage: str = "") -> None:
        self._connection = connection
        self.path = path
        self._damage = Damage(damage)
        self._is_mendable = False

    @property
    def damage(self) -> str:
        """What is to be told: all that is known to be damaged by now, be it one record; empty when nothing is."""
        return self._damage.told

    @property
    def is_remnant(self) -> bool:
        """Whether the file as a whole is damaged, so that nothing should be written to it and nothing new is seen."""
        return bool(self._damage.whole)

    def now(self) -> float:
        """The time by the journal's clock, which limits are measured by."""
        try:
            return read_clock(self._connection).now()
        except BROKEN:
            return time.time()

    def note_damage(self, where: str, what: str) -> None:
        """Remember one damaged place that was come across."""
        self._damage.note(where, what)

    @classmethod
    def open(cls, folder: Path, *, is_written: bool = False) -> Reader | None:
        """A reader of the journal in this home; None when there is none. Say so when this process writes it."""
        connection = open_reader(folder, is_written=is_written)
        return None if connection is None else cls(connection, folder / home.JOURNAL)

    @classmethod
    def open_any(cls, folder: Path) -> Reader | None:
        """The same, also of a journal so damaged that nothing should be written to it any more.

        Damage that is found only later is mended then, in memory: `damage` tells of it from there on.
        """
        reader = cls._open_any(folder)
        if reader is not None:
            reader._is_mendable = True
            for table in LISTED:
                reader._check_table(table)
        return reader

    @classmethod
    def _open_any(cls, folder: Path) -> Reader | None:
        path = folder / home.JOURNAL
        reader = None
        promise = read_mark(folder)
        try:
            reader = cls.open(folder)
            if reader is None:
                return None
            reader.probe()
            whole = reader._log_damage() or reader._broken_promise(promise)
            if whole and read_mark(folder) != promise:
                # It was taken back meanwhile, or another one made: what it told of may have been removed since.
                whole = reader._log_damage()
            reader._damage.whole = whole
            return (_salvaged(path, whole) if whole else None) or reader
        except StorageCorrupt as error:
            rest = _salvaged(path, error.what)
            if rest is None and reader is not None and reader._has_runs():
                # Here and there a page is gone, and the others can be read as they lie.
                reader._damage.whole = error.what
                return reader
            if reader is not None:
                reader.close()
            if rest is None:
                raise
            return rest

    def _log_damage(self) -> str:
        """What is wrong with the log, when a process that died has left one."""
        log = self.path.with_name(f"{self.path.name}-wal")
        if not log.exists() or not log.stat().st_size:
            return ""
        if not all(is_gone(owner) for name in self.owners() if (owner := Owner.named(name)) is not None):
            return ""
        from deputy.journal.salvage import log_damage

        return log_damage(self.path)

    def _broken_promise(self, promise: Promise | None) -> str:
        """What is missing that was durable before this was opened; empty when nothing is known to be."""
        if promise is None:
            return ""
        last = self._rows("SELECT max(seq) FROM events WHERE run = ?", promise.run)[0][0]
        # Of a record that the run's own state tells of it is said where it should stand.
        if max(whole_number(last, 0), self._last(promise.run)) >= promise.seq:
            return ""
        return f"its end is missing, with record {promise.seq} of {promise.run!r}"

    def _has_runs(self) -> bool:
        try:
            return bool(self._rows("SELECT count(*) FROM runs")[0][0])
        except StorageCorrupt:
            return False

    def is_empty(self) -> bool:
        """Whether not one record can be read."""
        return next(readable(self._connection), None) is None

    def probe(self) -> None:
        """Make sure that the tables are the ones we made."""
        for query in _PROBES:
            self._rows(query)

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()

    def __enter__(self) -> Reader:
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
        """Where a run stands; None when there is no such run."""
        try:
            rows = self._rows("SELECT state, sum FROM runs WHERE run = ?", run)
        except StorageCorrupt:
            return self.fold(run)
        return self._state(run, rows[0]) if rows else None

    def live(self) -> list[State]:
        """The runs that have not ended, oldest first."""
        try:
            return self._states("SELECT run, state, sum FROM runs WHERE is_live")
        except StorageCorrupt:
            return [state for state in self._folded() if state.is_live]

    def blocked(self) -> list[State]:
        """The runs that ended with a question nobody has answered yet, oldest first."""
        try:
            self._connection.create_function("is_whole", 2, is_whole_state, deterministic=True)
            return [state for state in self._states(_BLOCKED) if state.status == "blocked"]
        except StorageCorrupt:
            return [state for state in self._folded() if state.status == "blocked"]

    def tree(self, root: str) -> list[State]:
        """All runs of a root session, oldest first."""
        return self._states("SELECT run, state, sum FROM runs WHERE root = ?", root)

    def unsettled(self) -> list[State]:
        """The runs that have not ended, or whose result was not handed over, oldest first."""
        return self._states("SELECT run, state, sum FROM runs WHERE NOT is_settled")

    def nested(self, root: str) -> list[tuple[str, str, bytes]]:
        """The runs of processes that runs of a tree have started: id, who started it, and what it reserved."""
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
        try:
            query = "SELECT run, state, sum FROM runs WHERE NOT is_live ORDER BY last_at DESC LIMIT ?"
            return self._states(query, limit)
        except StorageCorrupt:
            return [state for state in self._folded() if not state.is_live][-limit:]

    def holders(self, runs: Iterable[str]) -> dict[str, Holder]:
        """Who has the leases of these runs."""
        found: dict[str, Holder] = {}
        # A run whose lease cannot be read has nobody at work on it, as far as can be told.
        with suppress(StorageCorrupt):
            for run in runs:
                for owner, epoch, beat in self._rows(HOLDER, run):
                    found[run] = Holder(owner=owner or "", epoch=epoch, beat=beat)
        return found

    def owners(self) -> list[str]:
        """The processes that gave signs of life."""
        return [row[0] for row in self._rows("SELECT owner FROM owners")]

    def old_roots(self, before: float) -> list[str]:
        """The root sessions of ended runs in which nothing has happened since."""
        query = "SELECT DISTINCT root FROM runs WHERE NOT is_live AND last_at < ?"
        return [row[0] for row in self._rows(query, before)]

    def ids(self) -> list[str]:
        """All runs there are."""
        return [row[0] for row in self._rows("SELECT run FROM runs")]

    def pinned(self) -> set[str]:
        """The runs that are kept for good."""
        return {row[0] for row in self._rows("SELECT run FROM pins")}

    # --- records ------------------------------------------------------------------------------------------------------

    def get(self, run: str, key: str) -> Record | Damaged | None:
        """The record of a run under a key."""
        rows = self._rows(EVENT_UNDER_KEY, run, key)
        found = read_event(rows[0]) if rows else None
        if isinstance(found, Damaged):
            self.note_damage(found.where, found.what)
        return found

    def must_get(self, run: str, key: str) -> Record | Damaged:
        """The same of a record that is known to be there: if the key does not lead to it, all are looked through."""
        found = self.get(run, key)
        if found is None:
            missing = Damaged(where=f"{run!r} record {key!r}", what="it is missing or damaged")
            same = (record for record in self.records(run) if isinstance(record, Record) and record.key == key)
            found = next(same, missing)
            if not self._is_removed(run):
                self.note_damage(missing.where, missing.what)
        return found

    def records(self, run: str, after: int = 0) -> Iterator[Record | Damaged]:
        """The records of a run in order, after the how-manieth; what is damaged or missing stands as that."""
        if self._damage.whole:
            yield Damaged(where=str(self.path), what=self._damage.whole)
        for record in self._records(run, after):
            if isinstance(record, Damaged):
                self.note_damage(record.where, record.what)
            yield record

    def _records(self, run: str, after: int) -> Iterator[Record | Damaged]:
        expected = after + 1
        last = self._last(run)
        try:
            for row in self._pages(run, after):
                record = read_event(row)
                seq = whole_number(row[1], expected) if isinstance(record, Damaged) else record.seq
                if seq != expected:
                    break
                yield record
                expected += 1
        except BROKEN as error:
            yield Damaged(where=str(self.path), what=str(error))
            if self._is_mendable:
                self._mend(str(error))
            last = max(last, expected, self._last(run))
        else:
            last = 0 if expected <= last and self._is_removed(run) else last
        if expected <= last:
            yield from self._salvage(run, expected, last)

    def addressed(self) -> list[tuple[str, str]]:
        """The live runs, and topics, of messages that nobody has taken yet."""
        query = "SELECT DISTINCT i.run, i.topic FROM inbox i JOIN runs r USING (run) WHERE NOT i.is_taken AND r.is_live"
        return self._rows(query)

    def progress(self, run: str, after: int = 0) -> list[tuple[int, float, bytes]]:
        """The last signs of progress of a run: number, time, body."""
        return self._rows("SELECT n, at, body FROM progress WHERE run = ? AND n > ? ORDER BY n", run, after)

    def errors(self, limit: int) -> list[Row]:
        """The latest errors: id, first and last time, count, body, checksum."""
        self._check_table("errors")
        return self._rows(
            "SELECT id, first_at, last_at, count, body, sum FROM errors ORDER BY last_at DESC LIMIT ?", limit
        )

    def changes(self) -> int:
        """A number that is another one after any process has written."""
        return self._rows("PRAGMA data_version")[0][0]

    # --- how ----------------------------------------------------------------------------------------------------------

    def _rows(self, query: str, *values: Any) -> list[Any]:
        try:
            return self._ask(query, values)
        except StorageCorrupt as error:
            if not self._is_mendable:
                raise
            self._mend(error.what)
            return self._ask(query, values)

    def _ask(self, query: str, values: Row) -> list[Any]:
        with typed(self.path):
            return patiently(lambda: self._connection.execute(query, values).fetchall(), self.path)

    def _mend(self, what: str) -> None:
        """Go on with a journal in memory that is made anew from the records that can be trusted."""
        from deputy.journal.rebuild import damaged_parts, rebuild

        self._is_mendable = False
        damaged = self._connection
        self._damage.whole = self._damage.whole or f"{damaged_parts(damaged)} ({what})"
        self._connection = rebuild(damaged, readable(damaged))
        damaged.close()

    def examine(self) -> None:
        """Look at every page of the file and at every record; `damage` then tells what was found."""
        self._check_table(_ALL_TABLES)
        examine(self._connection, self._damage)

    def _check_table(self, table: str) -> None:
        """Make sure that what a table holds is found by all of its indexes."""
        if not self._is_mendable:
            return
        try:
            found = self._ask(f"PRAGMA integrity_check({table})", ())[0][0]
        except StorageCorrupt as error:
            found = error.what
        if found != "ok":
            self._mend(str(found).splitlines()[-1])

    def _pages(self, run: str, after: int) -> Iterator[Row]:
        # A page at a time, so that a slow reader holds no old version of the file open.
        while True:
            values = (run, after, _PAGE)
            page = patiently(lambda v=values: self._connection.execute(EVENTS_AFTER, v).fetchall(), self.path)
            yield from page
            if len(page) < _PAGE:
                return
            after = whole_number(page[-1][1], after + _PAGE)

    def _is_removed(self, run: str) -> bool:
        """Whether a run that was there is no more: another process may remove it while it is read."""
        try:
            return not self._connection.execute("SELECT 1 FROM runs WHERE run = ?", (run,)).fetchall()
        except BROKEN:
            return False

    def _last(self, run: str) -> int:
        """How many records a run has, as its state says; where that is damaged, as those say that can be found."""
        try:
            rows = self._connection.execute("SELECT state, sum FROM runs WHERE run = ?", (run,)).fetchall()
        except BROKEN:
            return 0
        if not rows:
            return 0
        state = read_state(rows[0])
        if state is not None:
            return state.seq
        self._damage.note_state(run)
        return max((record.seq for record in readable(self._connection) if record.run == run), default=0)

    def _salvage(self, run: str, start: int, last: int) -> Iterator[Record | Damaged]:
        """What can still be read without the indexes, jumping over pages that are gone."""
        found = {
            record.seq: record for record in readable(self._connection) if record.run == run and record.seq >= start
        }
        for seq in sorted((*found, last + 1)):
            if seq > start:
                yield Damaged(where=f"{run!r} records {start} to {seq - 1}", what="they are missing or damaged")
            if seq in found:
                yield found[seq]
            start = max(start, seq + 1)

    def _folded(self) -> list[State]:
        """The states of all runs whose records can still be read, without the index of runs."""
        records: dict[str, dict[int, Record]] = {}
        for record in readable(self._connection):
            records.setdefault(record.run, {})[record.seq] = record
        states = (replay([found[seq] for seq in sorted(found)]) for found in records.values())
        return sorted(states, key=_age)

    def _states(self, query: str, *values: Any) -> list[State]:
        states = (self._state(run, row) for run, *row in self._rows(query, *values))
        return sorted((state for state in states if state is not None), key=_age)

    def _state(self, run: str, row: Any) -> State | None:
        state = read_state(tuple(row))
        if state is not None:
            return state
        self._damage.note_state(run)
        return self.fold(run)

    def fold(self, run: str) -> State | None:
        """The state of a run from its records alone."""
        state = State()
        for record in self.records(run):
            if not isinstance(record, Damaged):
                state = apply(state, record)
        return state if state.seq else None


def _salvaged(path: Path, damage: str) -> Reader | None:
    """A reader of what is left of a damaged journal; None when that is nothing."""
    from deputy.journal.salvage import open_copy

    copy = open_copy(path)
    if copy is None:
        return None
    reader = Reader(copy, path, damage)
    if not reader.is_empty():
        return reader
    reader.close()
    return None


def _age(state: State) -> tuple[float, str]:
    return state.requested_at, state.run
