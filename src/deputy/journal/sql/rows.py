"""Rows of the journal; each has a checksum that every read verifies."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, TypeAlias, cast

from msgspec import Struct

from deputy.core.events import Record, decode
from deputy.core.state import State, decode_state, encode_state
from deputy.engine.ports.queries import DamagedRecord

Row: TypeAlias = tuple[Any, ...]

EVENT_UNDER_KEY = "SELECT run, seq, key, at, clock, kind, body, sum FROM events WHERE run = ? AND key = ?"
EVENTS_AFTER = (
    "SELECT run, seq, key, at, clock, kind, body, sum FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
)
NO_LIMIT = 1 << 60
"""A limit on rows that none reaches."""
_PIECE, _LONG = 2047, 64 * 1024
"""Chunk size below which hashlib keeps the GIL, and the size from which releasing it pays."""


class LeaseRow(Struct, frozen=True, gc=False):
    """The lease of a run."""

    owner: str
    """Empty when no process holds it."""
    epoch: int
    is_orphaned: bool
    """Whether its holder, if there is one, has ended or is silent."""
    queue: str = ""
    """The queue of the workers that carry it out; empty when the run stays with its process."""

    @property
    def pid(self) -> str:
        """The process id of the holder, for messages."""
        parts = self.owner.split("/")
        return parts[2] if len(parts) > 2 else "unknown"


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
    """The row of a run."""
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
