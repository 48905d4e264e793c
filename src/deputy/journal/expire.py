"""End runs past their deadline, and refuse approvals that were not answered in time; any process may do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.errors import LeaseHeld, StorageCorrupt
from deputy.core.events import Adopted, Returned, encode
from deputy.core.messages import NO
from deputy.core.results import Result
from deputy.core.state import answer_key
from deputy.engine.partial_result import late_ending
from deputy.engine.ports.queries import DamagedRecord
from deputy.journal import transcript
from deputy.journal.process_identity import this_process
from deputy.journal.sql.transaction import SqlLease, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from deputy.core.events import Event, Moment
    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.journal.sql.sql_queries import SqlQueries
    from deputy.journal.sql.sql_store import SqlStore, SqlTables, StoreWriter

    _End = Callable[[Transaction, State, Moment], bool]


def expire_overdue(store: SqlStore, late: Iterable[State]) -> list[State]:
    """End these runs, one transaction each; returns those that no other process ended first."""
    return _end(store, late, expire)


def expire_unanswered(store: SqlStore, asking: Iterable[State]) -> list[State]:
    """Refuse the unanswered approvals of these runs; returns the runs that this ended."""
    return _end(store, asking, refuse)


def _end(store: SqlStore, found: Iterable[State], end: _End) -> list[State]:
    with store.writing() as writer:
        ended = [state for state in found if _ended_one(writer, store.location, state, end)]
    queries = store.queries() if ended else None
    if queries is not None:
        with queries:
            for state in ended:
                write_ended_transcript(store.folder, queries, state.run)
    return ended


def write_ended_transcript(folder: Path, queries: SqlQueries, run: str) -> None:
    """Write the transcript file of a subagent that has ended."""
    made = transcript.of_ended(queries, run)
    if made is not None:
        transcript.write_transcript(folder, made)


def _ended_one(writer: StoreWriter, location: str, seen: State, end: _End) -> bool:
    def do(tables: SqlTables) -> bool:
        tx = Transaction(tables, location, this_process().name)
        for run in sorted(filter(None, (seen.run, seen.parent))):
            # A caller that parks at this moment has seen the end, or is found parked.
            tables.holder(run)
        is_ended = end(tx, seen, tables.moment())
        tx.index()
        tx.announce()
        return is_ended

    try:
        return writer.transact(do)
    except (StorageCorrupt, LeaseHeld):
        # A run with damaged records is left as it is; the others are still ended.
        return False


def expire(tx: Transaction, seen: State, at: Moment) -> bool:
    """End a run, unless it has changed since it was read. Its lease becomes void: its process writes nothing more."""
    queries = tx.tables.queries()
    state = _as_it_is(tx, queries, seen.run)
    if state is None or not state.is_live or (state.round, _deadline(state)) != (seen.round, _deadline(seen)):
        return False
    outcome = late_ending(
        state, _events(queries, seen.run), _results(queries, state), queries.descendants(seen.run), at.clock
    )
    lease = _take_lease(tx, state, at)
    _return(tx, lease, outcome, at)
    return True


def refuse(tx: Transaction, seen: State, at: Moment) -> bool:
    """Refuse the unanswered approvals of a run; end the run if it has not begun and no process holds it.

    A process that holds the run receives the refusal. An approval that came in time still counts.
    """
    from deputy.engine.dispatch import unapproved_ending

    queries = tx.tables.queries()
    state = _as_it_is(tx, queries, seen.run)
    if state is None or not state.waits or state.answer_by is None or state.answer_by > at.clock:
        return False
    for key, topic in state.waits.items():
        tx.send(state.run, topic, answer_key(key), NO)
    outcome = unapproved_ending(state, _events(queries, state.run))
    if outcome is None or tx.is_held(state.run) or tx.has_other(state.run, NO):
        return False
    lease = _take_lease(tx, state, at)
    for key, topic in state.waits.items():
        tx.receive_message(lease, key, at, topic)
    _return(tx, lease, outcome, at)
    return True


def _as_it_is(tx: Transaction, queries: SqlQueries, run: str) -> State | None:
    known = queries.state(run)
    if known is None:
        return None
    now = SqlLease(run, 0, known)
    tx.catch_up(now)
    return now.state


def _events(queries: SqlQueries, run: str) -> list[Event]:
    return [record.event for record in queries.records(run) if not isinstance(record, DamagedRecord)]


def _take_lease(tx: Transaction, state: State, at: Moment) -> SqlLease:
    holder = tx.holder(state.run)
    lease = tx.grant(state.run, state, is_forced=True)
    if holder is not None and holder.owner:
        adopted = Adopted(owner=tx.owner, previous_owner=holder.owner)
        tx.append(lease, f"adopted:{lease.epoch}", at, adopted, encode(adopted))
    return lease


def _return(tx: Transaction, lease: SqlLease, outcome: Outcome, at: Moment) -> None:
    returned = Returned(outcome=outcome)
    tx.append(lease, f"returned:{tx.state(lease).round}", at, returned, encode(returned))
    tx.release(lease)


def _results(queries: SqlQueries, state: State) -> list[Result]:
    """The results of the ended children of a run."""
    if not state.counts.children:
        return []
    children = [(child.label, queries.outcome(child)) for child in queries.children(state.run)]
    return [Result(label=label, outcome=outcome) for label, outcome in children if outcome is not None]


def _deadline(state: State) -> float | None:
    return None if state.lineage is None else state.lineage.deadline
