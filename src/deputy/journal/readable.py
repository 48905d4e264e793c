"""Every record in a file that can be trusted, whatever is left of its indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from deputy.journal.connection import BROKEN
from deputy.journal.rows import EVENT_BEHIND, Damaged, read_event, whole_number

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from deputy.core.events import Record

_FAR = 1 << 40


def readable(connection: sqlite3.Connection) -> Iterator[Record]:
    """All of them as they lie in the file, jumping over pages that are gone."""
    at = 0
    while True:
        found = _next(connection, at)
        if isinstance(found, tuple):
            at, record = found
            yield record
        else:
            at = _beyond(connection, at) if found == "gone" else 0
            if not at:
                return


def _next(connection: sqlite3.Connection, at: int) -> tuple[int, Record] | Literal["gone", "end"]:
    """The first record behind a place. One that is damaged may lie about where it stands, and counts as gone."""
    try:
        row = connection.execute(EVENT_BEHIND, (at,)).fetchone()
    except BROKEN:
        return "gone"
    if row is None:
        return "end"
    record = read_event(row[1:])
    number = whole_number(row[0], 0)
    return "gone" if isinstance(record, Damaged) or number <= at else (number, record)


def _beyond(connection: sqlite3.Connection, at: int) -> int:
    """The first place behind what is gone, found by leaps that double and then by halving; 0 when there is none."""
    leap = 1
    while _next(connection, at + leap) == "gone":
        leap *= 2
        if leap > _FAR:
            return 0
    gone, whole = at + leap // 2, at + leap
    while whole - gone > 1:
        middle = (gone + whole) // 2
        gone, whole = (middle, whole) if _next(connection, middle) == "gone" else (gone, middle)
    return whole
