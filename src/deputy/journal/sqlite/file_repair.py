"""Check a journal for damage, and repair it: a new journal from every row whose checksum fits."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple

from deputy.core.errors import StorageBusy, StorageCorrupt
from deputy.core.state import replay
from deputy.engine.ports.queries import DamagedRecord, RepairedJournal
from deputy.journal import home
from deputy.journal.sql.rows import (
    EVENTS_AFTER,
    is_whole_error,
    is_whole_event,
    is_whole_message,
    read_event,
    read_state,
    run_row,
    whole_number,
)
from deputy.journal.sqlite import commit_marker, schema
from deputy.journal.sqlite.connection import BROKEN, connect, typed
from deputy.journal.sqlite.sqlite_tables import EVENTS, PUT_RUNS, execute

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deputy.core.events import Record
    from deputy.core.state import State
    from deputy.journal.sql.rows import Row
    from deputy.journal.sql.sql_queries import JournalDamage

_FILES = (home.JOURNAL, f"{home.JOURNAL}-wal", f"{home.JOURNAL}-journal", commit_marker.NAME)
_COUNTED = "SELECT count(*), max(seq) FROM events WHERE run = ?"
_FARTHEST = 1 << 40
"""No table has a row with a higher number."""


class _Table(NamedTuple):
    name: str
    columns: str
    add: str

    @property
    def query(self) -> str:
        """Its rows after a number, in the order of the file and without an index."""
        # The names are constants of this file.
        return f"SELECT rowid, {self.columns} FROM {self.name} NOT INDEXED WHERE rowid > ? ORDER BY rowid"  # noqa: S608


_EVENTS = _Table(
    "events",
    "run, seq, key, at, clock, kind, body, sum",
    "INSERT OR IGNORE INTO events (run, seq, key, at, clock, kind, body, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
)
_RUNS = _Table("runs", "run, state, sum", "")
_INBOX = _Table(
    "inbox",
    "run, topic, key, body, sum, is_taken",
    "INSERT OR IGNORE INTO inbox (run, topic, key, body, sum, is_taken) VALUES (?, ?, ?, ?, ?, ?)",
)
_LEASES = _Table("leases", "run, epoch", "INSERT OR IGNORE INTO leases VALUES (?, NULL, ?)")
_PINS = _Table("pins", "run", "INSERT OR IGNORE INTO pins VALUES (?)")
_ERRORS = _Table(
    "errors",
    "id, first_at, last_at, count, body, sum",
    "INSERT OR IGNORE INTO errors VALUES (?, ?, ?, ?, ?, ?)",
)
_OURS = {table.name for table in (_EVENTS, _RUNS, _INBOX, _LEASES, _PINS, _ERRORS)}


def check_integrity(connection: sqlite3.Connection, damage: JournalDamage) -> list[str]:
    """Note each damaged state and record; returns the runs that lack records."""
    # One transaction, so that both tables are read as of one moment: other processes may remove runs meanwhile.
    connection.execute("BEGIN")
    try:
        for row in connection.execute(EVENTS):
            if not is_whole_event(row):
                damage.note(f"{row[0]!r} record {row[1]!r}", "its checksum does not fit")
        for row in connection.execute("SELECT id, first_at, last_at, count, body, sum FROM errors"):
            if not is_whole_error(row):
                damage.note(f"error {row[0]!r}", "its checksum does not fit")
        return [
            run
            for run, *row in connection.execute("SELECT run, state, sum FROM runs").fetchall()
            if _lacks_records(connection, damage, run, tuple(row))
        ]
    finally:
        connection.execute("ROLLBACK")


def _lacks_records(connection: sqlite3.Connection, damage: JournalDamage, run: str, row: tuple[object, ...]) -> bool:
    state = read_state(row)
    count, last = connection.execute(_COUNTED, (run,)).fetchone()
    if state is None:
        damage.note_state(run)
    elif (last or 0) > state.seq:
        damage.note(f"the state of {run!r}", f"it is older than record {last} of the run")
    return count != (state.seq if state is not None else last or 0)


def repair(folder: Path) -> RepairedJournal:
    """Replace a journal by one of its readable rows. Other processes must not have it open."""
    path = folder / home.JOURNAL
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}.new")
    kept = folder / time.strftime("damaged-%Y%m%d-%H%M%S", time.gmtime())
    with typed(kept):
        kept.mkdir(0o700)
    try:
        with typed(path):
            before = _fingerprint(path)
            _copy_files(folder, kept)
            _refuse_foreign(path, kept)
            repaired = _fill(draft, kept)
            _refuse_in_use(path, before)
    except BaseException:
        for left in folder.glob(f"{draft.name}*"):
            left.unlink(missing_ok=True)
        shutil.rmtree(kept, ignore_errors=True)
        raise
    with typed(path):
        # The log goes first: SQLite would apply it to the new file. The mark goes last: until then, a journal whose
        # log is gone and that is not replaced yet is refused.
        for end in ("-wal", "-shm", "-journal"):
            path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
        draft.replace(path)
        home.sync_directory(folder)
        commit_marker.clear(folder)
    return repaired


def _fingerprint(path: Path) -> list[tuple[int, int]]:
    """A value that changes when a process writes the journal."""
    found: list[tuple[int, int]] = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        with suppress(FileNotFoundError):
            stat = file.stat()
            # An empty log is made by any connection that opens the journal.
            found += [(stat.st_size, stat.st_mtime_ns)] if stat.st_size else []
    return found


def _copy_files(folder: Path, to: Path) -> None:
    for name in _FILES:
        if home.has_file(folder / name):
            with (folder / name).open("rb") as source, os.fdopen(home.open_own(to / name), "wb") as target:
                shutil.copyfileobj(source, target)
                target.flush()
                os.fsync(target.fileno())
    home.sync_directory(to)


def _refuse_in_use(path: Path, before: object) -> None:
    """Refuse to replace a journal that another process has open, or has written since it was copied."""
    is_busy = False
    try:
        with closing(connect(path, "rw")) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            is_busy = _fingerprint(path) != before
    except sqlite3.DatabaseError as error:
        # A file that SQLite cannot open at all is used by no process.
        is_busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    if is_busy:
        raise StorageBusy(str(path), "another process uses it", "End that process, then run the command again.")


def _fill(draft: Path, kept: Path) -> RepairedJournal:
    """Make the new journal in a draft file."""
    home.make_file(draft, schema.fresh)
    with closing(_open_damaged(kept / home.JOURNAL)) as damaged, closing(connect(draft, "rw")) as made:
        made.execute("BEGIN")
        repaired = _Copy(_Source(damaged), made).run(kept)
        made.execute("COMMIT")
    (kept / f"{home.JOURNAL}-shm").unlink(missing_ok=True)
    return repaired


def _open_damaged(path: Path) -> sqlite3.Connection:
    is_there = path.exists() and path.stat().st_size > 0
    connection = connect(path, "ro") if is_there else sqlite3.connect(":memory:", isolation_level=None)
    # Text that is not UTF-8 does not stop the reading; its row has a checksum that does not fit.
    connection.text_factory = _decoded
    # Only with this does SQLite read a file that was cut short, or tables beside one whose definition is damaged.
    connection.execute("PRAGMA writable_schema = ON")
    return connection


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")


def _refuse_foreign(path: Path, kept: Path) -> None:
    """Refuse a database of another program."""
    with closing(_open_damaged(kept / home.JOURNAL)) as connection, suppress(*BROKEN):
        application: int = connection.execute("PRAGMA application_id").fetchone()[0]
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        if application != schema.APPLICATION and names and not names & _OURS:
            raise StorageCorrupt(str(path), "it is not a journal of Deputy", "Name another home with DEPUTY_HOME.")


class _Source:
    """The tables of a damaged file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.unread: set[str] = set()

    def rows(self, table: _Table) -> Iterator[Row]:
        """The rows of a table without their numbers, as they are in the file, except those that SQL cannot read."""
        at = 0
        while True:
            try:
                for number, *row in self._connection.execute(table.query, (at,)):
                    at = max(at, whole_number(number, at))
                    yield tuple(row)
            except BROKEN:
                self.unread.add(table.name)
                at = self._beyond(table.query, at)
                if at < _FARTHEST:
                    continue
            return

    def _beyond(self, query: str, at: int) -> int:
        """The first number after which rows can be read again, found by steps that double and then by halving."""
        step = 1
        while not self._is_readable(query, at + step):
            step *= 2
            if step > _FARTHEST:
                return _FARTHEST
        bad, good = at + step // 2, at + step
        while good - bad > 1:
            middle = (bad + good) // 2
            bad, good = (bad, middle) if self._is_readable(query, middle) else (middle, good)
        return good

    def _is_readable(self, query: str, after: int) -> bool:
        try:
            self._connection.execute(query, (after,)).fetchone()
        except BROKEN:
            return False
        return True


class _Copy:
    """The copying of one journal."""

    def __init__(self, source: _Source, made: sqlite3.Connection) -> None:
        self._source = source
        self._made = made

    def run(self, kept: Path) -> RepairedJournal:
        """Copy every row that can be trusted."""
        self._copy_events()
        promise = commit_marker.read_marker(kept)
        is_end_lost = promise is not None and promise.seq not in {record.seq for record in self._records(promise.run)}
        is_whole = not is_end_lost and _EVENTS.name not in self._source.unread
        stored = self._stored_states()
        states: dict[str, State] = {}
        lost: list[str] = []
        records = 0
        incomplete: list[str] = []
        for run in sorted({*stored, *(row[0] for row in self._made.execute("SELECT DISTINCT run FROM events"))}):
            found = self._records(run)
            state = _trusted_state(stored.get(run), found, is_whole=is_whole)
            if state is None:
                lost.append(run)
                self._made.execute("DELETE FROM events WHERE run = ?", (run,))
                continue
            states[run] = state
            records += len(found)
            if len(found) < state.seq:
                incomplete.append(run)
        execute(self._made, PUT_RUNS, [run_row(run, state) for run, state in states.items()])
        self._copy_beside(states)
        return RepairedJournal(
            kept=str(kept),
            runs=len(states),
            records=records,
            incomplete=tuple(incomplete),
            lost=tuple(lost),
            unread=tuple(sorted(self._source.unread)),
            is_end_lost=is_end_lost,
        )

    def _copy_events(self) -> None:
        for row in self._source.rows(_EVENTS):
            if isinstance(read_event(row), DamagedRecord):
                self._source.unread.add(_EVENTS.name)
            else:
                self._made.execute(_EVENTS.add, row)

    def _stored_states(self) -> dict[str, State]:
        states: dict[str, State] = {}
        for run, *row in self._source.rows(_RUNS):
            state = read_state(tuple(row))
            if state is None or state.run != run:
                self._source.unread.add(_RUNS.name)
            else:
                states[run] = state
        return states

    def _records(self, run: str) -> list[Record]:
        rows = self._made.execute(EVENTS_AFTER, (run, 0, -1)).fetchall()
        return [record for row in rows if not isinstance(record := read_event(row), DamagedRecord)]

    def _copy_beside(self, states: dict[str, State]) -> None:
        """Copy what belongs to the copied runs, and the log of errors. Rows without a checksum are not kept."""
        for table in (_INBOX, _LEASES, _PINS, _ERRORS):
            for row in self._source.rows(table):
                if _is_trusted(table, row, states):
                    self._made.execute(table.add, row)


def _is_trusted(table: _Table, row: Row, states: dict[str, State]) -> bool:
    if table is _ERRORS:
        return is_whole_error(row)
    if row[0] not in states:
        return False
    is_sound = all(isinstance(value, str | int) for value in (row[0], row[-1]))
    return is_sound and (table is not _INBOX or is_whole_message(row[:-1]))


def _trusted_state(stored: State | None, records: list[Record], *, is_whole: bool) -> State | None:
    """The state of a run; None when what is left of it could be taken for what it is not.

    A run that has not ended, and whose last records may be lost, would do again what it has done.
    """
    last = records[-1].seq if records else 0
    if stored is not None and stored.seq >= last:
        return stored
    folded = replay(records) if len(records) == last else None
    return folded if folded is not None and (is_whole or not folded.is_live) else None
