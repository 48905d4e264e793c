"""Rows of the journal; each has a checksum that every read verifies."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from deputy.core.events import Record, decode
from deputy.core.state import State, decode_state, encode_state
from deputy.engine.ports.queries import DamagedRecord

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

Row: TypeAlias = tuple[Any, ...]

ADD_EVENT = (
    "INSERT INTO events (run, seq, key, at, clock, kind, body, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (run, key) DO NOTHING"
)
EVENTS = "SELECT run, seq, key, at, clock, kind, body, sum FROM events NOT INDEXED"
EVENT_UNDER_KEY = "SELECT run, seq, key, at, clock, kind, body, sum FROM events WHERE run = ? AND key = ?"
EVENTS_AFTER = (
    "SELECT run, seq, key, at, clock, kind, body, sum FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
)
LAST_EVENT = "SELECT run, seq, key, at, clock, kind, body, sum FROM events NOT INDEXED ORDER BY id DESC LIMIT 1"
HOLDER = "SELECT l.owner, l.epoch, o.beat FROM leases l LEFT JOIN owners o USING (owner) WHERE l.run = ?"


class BulkStatement(NamedTuple):
    """A statement over many rows."""

    before: str
    row: str
    after: str = ""


ADD_EVENTS = BulkStatement(
    "INSERT INTO events (run, seq, key, at, clock, kind, body, sum) VALUES ", "(?, ?, ?, ?, ?, ?, ?, ?)"
)
PUT_PROGRESS = BulkStatement("INSERT OR REPLACE INTO progress (run, slot, at, body) VALUES ", "(?, ?, ?, ?)")
PUT_RUNS = BulkStatement(
    "INSERT INTO runs (last_at, state, sum, run, parent, root, is_live, is_settled) VALUES ",
    "(?, ?, ?, ?, ?, ?, ?, ?)",
    " ON CONFLICT (run) DO UPDATE SET last_at = excluded.last_at, state = excluded.state, sum = excluded.sum,"
    " is_live = excluded.is_live, is_settled = excluded.is_settled",
)
SET_STATES = BulkStatement(
    "WITH changed (last_at, state, sum, run) AS (VALUES ",
    "(?, ?, ?, ?)",
    ") UPDATE runs SET last_at = changed.last_at, state = changed.state, sum = changed.sum FROM changed"
    " WHERE runs.run = changed.run",
)
ADD_LEASES = BulkStatement("INSERT INTO leases VALUES ", "(?, ?, ?)")
END_LEASES = BulkStatement(
    "WITH ended (run, epoch, owner) AS (VALUES ",
    "(?, ?, ?)",
    ") UPDATE leases SET owner = NULL FROM ended"
    " WHERE leases.run = ended.run AND leases.epoch = ended.epoch AND leases.owner = ended.owner",
)
_PIECE, _LONG = 2047, 64 * 1024
"""Chunk size below which hashlib keeps the GIL, and the size from which releasing it pays."""
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


def event_row(record: Record, body: bytes) -> Row:
    """The row of a record whose event has this JSON."""
    kind = record.event.kind
    total = _checksum(record.run, record.seq, record.key, (record.at, record.clock), kind, body)
    return (record.run, record.seq, record.key, record.at, record.clock, kind, body, total)


def read_event(row: Row) -> Record | DamagedRecord:
    """The record of a row, or a DamagedRecord. A damaged row may hold any values."""
    run, seq, key, at, clock, _, body, _ = row
    try:
        if not is_whole_event(row):
            return DamagedRecord(where=f"{run!r} record {seq!r}", what="its checksum does not fit")
        return Record(run=run, seq=seq, key=key, at=at, clock=clock, event=decode(body))
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        return DamagedRecord(where=f"{run!r} record {seq!r}", what=f"it cannot be read: {error}")


def whole_number(value: object, otherwise: int) -> int:
    """An integer of a row; in a damaged row it may be something else."""
    return value if isinstance(value, int) else otherwise


def is_whole_event(row: Row) -> bool:
    """Whether the checksum of a row of events fits."""
    run, seq, key, at, clock, kind, body, total = row
    return isinstance(body, bytes) and _checksum(run, seq, key, (at, clock), kind, body) == total


def state_row(state: State) -> tuple[bytes, bytes]:
    """A run's state and its checksum."""
    body = encode_state(state)
    return body, blake2b(body, digest_size=8).digest()


def run_row(run: str, state: State) -> Row:
    """The row of a run for PUT_RUNS."""
    root = state.run if state.lineage is None else state.lineage.root_id
    return (state.last_at, *state_row(state), run, state.parent, root, state.is_live, state.is_settled)


def read_state(row: Row) -> State | None:
    """The state of a row; None when it is damaged and must be folded again."""
    body, total = row
    try:
        return decode_state(body) if is_whole_state(body, total) else None
    except ValueError:
        return None


def is_whole_state(body: object, total: object) -> bool:
    """Whether the checksum of a stored state fits."""
    return isinstance(body, bytes) and blake2b(body, digest_size=8).digest() == total


def message_sum(run: str, topic: str, key: str, body: object) -> bytes:
    """The checksum of a message to a run."""
    return _checksum(run, topic, key, "", "", body)


def is_whole_message(row: Row) -> bool:
    """Whether the checksum of a message fits: run, topic, key, body, checksum."""
    run, topic, key, body, total = row
    return isinstance(body, bytes) and message_sum(run, topic, key, body) == total


def error_sum(name: str, first_at: float, last_at: float, count: int, body: object) -> bytes:
    """The checksum of a row of the log of errors."""
    return _checksum(name, first_at, last_at, count, "", body)


def is_whole_error(row: Row) -> bool:
    """Whether the checksum of a row of the log of errors fits."""
    name, first_at, last_at, count, body, total = row
    return isinstance(body, bytes) and error_sum(name, first_at, last_at, count, body) == total


def _checksum(run: object, seq: object, key: object, at: object, kind: object, body: object) -> bytes:
    # The first five contain no zero byte, so no two records have the same form.
    total = blake2b(f"{run!s}\0{seq!s}\0{key!s}\0{at!r}\0{kind!s}\0".encode(errors="replace"), digest_size=8)
    held = memoryview(cast("bytes", body))
    # Releasing the GIL costs more than the hash of a short piece.
    piece = _PIECE if len(held) < _LONG else len(held)
    for start in range(0, len(held), piece):
        total.update(held[start : start + piece])
    return total.digest()
