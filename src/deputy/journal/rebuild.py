"""A damaged journal made anew in memory from the records that are whole: what is derived from them is folded again."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from deputy.core.events import encode
from deputy.core.state import replay
from deputy.journal import schema
from deputy.journal.rows import PUT_RUNS, event_row, execute, read_state, state_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deputy.core.events import Record
    from deputy.core.state import State

BROKEN = (sqlite3.Error, UnicodeDecodeError)
_KEPT_EVENT = "INSERT OR IGNORE INTO events (run, seq, key, at, clock, kind, body, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_BESIDE = (
    ("SELECT * FROM owners NOT INDEXED", "INSERT OR IGNORE INTO owners VALUES (?, ?)"),
    ("SELECT * FROM leases NOT INDEXED", "INSERT OR IGNORE INTO leases VALUES (?, ?, ?)"),
    ("SELECT * FROM inbox NOT INDEXED", "INSERT OR IGNORE INTO inbox VALUES (?, ?, ?, ?, ?, ?, ?)"),
    ("SELECT * FROM progress NOT INDEXED", "INSERT OR IGNORE INTO progress VALUES (?, ?, ?, ?, ?)"),
    ("SELECT * FROM pins NOT INDEXED", "INSERT OR IGNORE INTO pins VALUES (?)"),
    ("SELECT * FROM errors NOT INDEXED", "INSERT OR IGNORE INTO errors VALUES (?, ?, ?, ?, ?, ?)"),
    ("SELECT * FROM clocks NOT INDEXED", "INSERT OR IGNORE INTO clocks VALUES (?, ?)"),
)
"""What no record can restore: of it is kept what can be read."""
_EVENTS = "SELECT count(*) FROM events NOT INDEXED"
_WHOLE = {
    "events": _EVENTS,
    "runs": "SELECT count(*) FROM runs NOT INDEXED",
    "owners": "SELECT count(*) FROM owners NOT INDEXED",
    "leases": "SELECT count(*) FROM leases NOT INDEXED",
    "inbox": "SELECT count(*) FROM inbox NOT INDEXED",
    "progress": "SELECT count(*) FROM progress NOT INDEXED",
    "pins": "SELECT count(*) FROM pins NOT INDEXED",
    "paces": "SELECT count(*) FROM paces NOT INDEXED",
    "errors": "SELECT count(*) FROM errors NOT INDEXED",
    "clocks": "SELECT count(*) FROM clocks NOT INDEXED",
}
"""What reads each table to its end."""


def rebuild(damaged: sqlite3.Connection, records: Iterable[Record]) -> sqlite3.Connection:
    """A connection to a whole journal with these records; what stands beside them is taken from the damaged one."""
    made = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    schema.migrate(made, ":memory:")
    found: dict[str, dict[int, Record]] = {}
    for record in chain(records, _scattered(damaged)):
        made.execute(_KEPT_EVENT, event_row(record, encode(record.event)))
        found.setdefault(record.run, {})[record.seq] = record
    states = _stored_states(damaged)
    for run, whole in found.items():
        folded = replay([whole[seq] for seq in sorted(whole)])
        # A state that was stored may know of records that are gone.
        if run not in states or states[run].seq < folded.seq:
            states[run] = folded
    execute(made, PUT_RUNS, [_run_row(run, state) for run, state in states.items()])
    for taken, put in _BESIDE:
        with suppress(*BROKEN):
            for row in damaged.execute(taken):
                made.execute(put, row)
    return made


def damaged_parts(connection: sqlite3.Connection) -> str:
    """Which tables cannot be read to their end; when all can, it is an index."""
    parts = [table for table, query in _WHOLE.items() if not _is_whole(connection, query)]
    if not parts:
        return "an index is damaged"
    return f"the table{'s' * (len(parts) > 1)} {', '.join(parts)} {'is' if len(parts) == 1 else 'are'} damaged"


def _scattered(damaged: sqlite3.Connection) -> Iterator[Record]:
    """The records that no tree leads to any more."""
    if _is_whole(damaged, _EVENTS):
        return
    from deputy.journal.leaves import leaf_records

    with suppress(*BROKEN, MemoryError):
        yield from leaf_records(damaged.serialize())


def _is_whole(connection: sqlite3.Connection, query: str) -> bool:
    try:
        connection.execute(query).fetchone()
    except BROKEN:
        return False
    return True


def _stored_states(damaged: sqlite3.Connection) -> dict[str, State]:
    states: dict[str, State] = {}
    with suppress(*BROKEN):
        for run, *row in damaged.execute("SELECT run, state, sum FROM runs NOT INDEXED"):
            state = read_state(tuple(row))
            if state is not None and state.run == run:
                states[run] = state
    return states


def _run_row(run: str, state: State) -> tuple[object, ...]:
    root = state.run if state.lineage is None else state.lineage.root_id
    return (state.last_at, *state_row(state), run, state.parent, root, state.is_live, state.is_settled)
