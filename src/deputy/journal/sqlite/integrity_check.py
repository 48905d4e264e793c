"""Integrity check: every state and record of a journal, for damaged or missing rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.journal.sqlite.rows import EVENTS, is_whole_error, is_whole_event, read_state

if TYPE_CHECKING:
    import sqlite3

_COUNTED = "SELECT count(*), max(seq) FROM events WHERE run = ?"


class JournalDamage:
    """The damaged places that were found so far."""

    def __init__(self) -> None:
        self._losses: dict[str, str] = {}

    def note(self, where: str, what: str) -> None:
        """Remember one damaged place."""
        self._losses.setdefault(where, what)

    def note_state(self, run: str) -> None:
        """Remember that the stored state of a run is damaged."""
        self.note(f"the state of {run!r}", "its checksum does not fit")

    @property
    def description(self) -> str:
        """All of it in one line; empty when nothing is damaged."""
        if not self._losses:
            return ""
        (where, what), *others = self._losses.items()
        more = f", and {len(others)} more damaged place{'s' * (len(others) > 1)}" if others else ""
        return f"{where}: {what}{more}"


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
