"""Whoever looks ends what is past its deadline: once, whoever started it, and without a loop or a model."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from deputy.core.events import Adopted, Returned, encode
from deputy.core.results import Result
from deputy.engine.remains import late_ending
from deputy.journal import connection as connections
from deputy.journal import home, registry, transcript
from deputy.journal.owner import this_process
from deputy.journal.reader import STALE_SECONDS, Reader
from deputy.journal.rows import Damaged
from deputy.journal.transaction import Lease, Transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from deputy.core.state import State


def end_late(folder: Path, late: Iterable[State], clock: Callable[[], float] = time.time) -> list[State]:
    """End these runs, each in a transaction of its own; gives those that nobody else has ended meanwhile."""
    path = folder / home.JOURNAL
    connection = connections.open_writer(folder, "group")
    try:
        with connections.typed(path):
            ended = [state for state in late if _ended_one(connection, path, state, clock)]
            reader = Reader(connection, path)
            for state in ended:
                leave_transcript(folder, reader, state.run)
        return ended
    finally:
        connection.close()


def leave_transcript(folder: Path, reader: Reader, run: str) -> None:
    """Write the file that a subagent leaves when it has ended."""
    made = transcript.of_ended(reader, run)
    if made is not None:
        transcript.write_transcript(folder, made)


def _ended_one(connection: sqlite3.Connection, path: Path, seen: State, clock: Callable[[], float]) -> bool:
    connections.patiently(lambda: connection.execute("BEGIN IMMEDIATE"), path)
    try:
        tx = Transaction(connection, str(path), this_process().name, STALE_SECONDS)
        is_ended = expire(tx, path, seen, clock())
        tx.index()
        connection.execute("COMMIT")
        return is_ended
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def expire(tx: Transaction, path: Path, seen: State, at: float) -> bool:
    """End a run that is as it was seen; its lease is void from here on, so that whoever had it writes nothing more."""
    reader = Reader(tx.connection, path)
    known = reader.state(seen.run)
    if known is None:
        return False
    now = Lease(seen.run, 0, known)
    tx.catch_up(now)
    state = now.state
    if not state.is_live or (state.round, _deadline(state)) != (seen.round, _deadline(seen)):
        return False
    events = [record.event for record in reader.records(seen.run) if not isinstance(record, Damaged)]
    outcome = late_ending(state, events, _results(reader, state), reader.descendants(seen.run), at)
    holder = tx.holder(seen.run)
    lease = tx.grant(seen.run, state, is_forced=True)
    if holder is not None and holder.owner:
        adopted = Adopted(owner=tx.owner, left_by=holder.owner)
        tx.append(lease, f"adopted:{lease.epoch}", at, adopted, encode(adopted))
    returned = Returned(outcome=outcome)
    tx.append(lease, f"returned:{state.round}", at, returned, encode(returned))
    tx.release(lease)
    return True


def _results(reader: Reader, state: State) -> list[Result]:
    """What those that a run spawned came to, as far as they have ended."""
    if not state.counts.children:
        return []
    children = [(child.label, registry.outcome(reader, child)) for child in reader.children(state.run)]
    return [Result(label=label, outcome=outcome) for label, outcome in children if outcome is not None]


def _deadline(state: State) -> float | None:
    return None if state.lineage is None else state.lineage.deadline
