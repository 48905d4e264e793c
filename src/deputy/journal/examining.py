"""What is damaged of a journal: what was come across, and a look at every page and record for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.journal.connection import BROKEN
from deputy.journal.rows import EVENTS, is_whole_event, read_state

if TYPE_CHECKING:
    import sqlite3

LISTED = ("runs", "leases", "owners")
"""The tables by which runs are found: a row that an index has lost would be missing without a word."""

_UP_TO = "SELECT count(*) FROM events WHERE run = ? AND seq <= ?"
_LAST = "SELECT max(seq) FROM events WHERE run = ?"


class Damage:
    """What is known to be damaged by now."""

    def __init__(self, whole: str = "") -> None:
        self.whole = whole
        """What is wrong with the file as a whole, when only what is left of it can be read; empty when nothing is."""
        self._losses: dict[str, str] = {}

    def note(self, where: str, what: str) -> None:
        """Remember one damaged place that was come across."""
        self._losses.setdefault(where, what)

    def note_state(self, run: str) -> None:
        """Remember that what stands in the table of runs about this one cannot be trusted."""
        self.note(f"the state of {run!r}", "its checksum does not fit")

    @property
    def told(self) -> str:
        """All of it in one line; empty when nothing is damaged."""
        if self.whole or not self._losses:
            return self.whole
        (where, what), *others = self._losses.items()
        more = f", and {len(others)} more damaged place{'s' * (len(others) > 1)}" if others else ""
        return f"{where}: {what}{more}"


def examine(connection: sqlite3.Connection, damage: Damage) -> None:
    """Look at every state and every record, and note what is damaged."""
    try:
        # Both tables as they are at one moment: others may remove runs meanwhile.
        connection.execute("BEGIN")
        try:
            _examine_runs(connection, damage)
            _examine_events(connection, damage)
        finally:
            connection.execute("ROLLBACK")
    except BROKEN as error:
        damage.note("the tables", str(error))


def _examine_runs(connection: sqlite3.Connection, damage: Damage) -> None:
    for run, *row in connection.execute("SELECT run, state, sum FROM runs").fetchall():
        state = read_state(tuple(row))
        if state is None:
            damage.note_state(run)
        end = connection.execute(_LAST, (run,)).fetchone()[0] if state is None else state.seq
        if connection.execute(_UP_TO, (run, end)).fetchone()[0] != (end or 0):
            damage.note(repr(run), f"not all of its {end} records are there")


def _examine_events(connection: sqlite3.Connection, damage: Damage) -> None:
    for row in connection.execute(EVENTS):
        if not is_whole_event(row):
            damage.note(f"{row[0]!r} record {row[1]!r}", "its checksum does not fit")
