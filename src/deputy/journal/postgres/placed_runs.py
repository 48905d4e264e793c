"""Transactions on runs that workers carry out: each decides under the lock of the run's lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.errors import UsageError
from deputy.core.events import CANCEL, Adopted, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.events import Moment
    from deputy.core.state import State
    from deputy.journal.sql.transaction import SqlLease, Transaction

_PLACE = "SELECT place(?)"
_LEASE = (
    "SELECT l.queue IS NOT NULL, l.is_placed, l.is_parked, l.placed, l.lost_owner, r.is_live"
    " FROM leases l JOIN runs r USING (run) WHERE l.run = ? FOR UPDATE OF l"
)
_LOSE = "UPDATE leases SET lost_owner = owner WHERE run = ? AND owner != ?"
_PARK = "UPDATE leases SET owner = NULL, is_parked = true, awaits = ? WHERE run = ?"
_HAS_MESSAGE = "SELECT 1 FROM inbox WHERE run = ? AND NOT is_taken AND topic = ANY (?)"
_HAS_ENDED = "SELECT 1 FROM runs WHERE run = ANY (?) AND NOT is_live"
_ENTER = "UPDATE owners SET labels = ?, slots = ?, keys = ?, draining = false WHERE owner = ?"
_OTHERS = (
    "SELECT slots, host FROM owners WHERE owner != ? AND slots > 0 AND NOT draining"
    " AND beat >= clock_timestamp() - ?::float8 * interval '1 s'"
    " AND (labels && ? OR (labels = '{}' AND ? = '{}'::text[]))"
)


def place(tx: Transaction, run: str) -> bool | None:
    """Put a live run that no process works on back on its queue; None when the run has no queue."""
    row = tx.tables.execute(_LEASE, (run,)).fetchone()
    if row is None or not row[0]:
        return None
    _, is_placed, is_parked, _, _, is_live = row
    holder = tx.holder(run)
    # A run that this process holds and does not work on was stopped by an error of the store.
    is_held = holder is not None and not holder.is_orphaned and holder.owner not in ("", tx.owner)
    if is_placed or is_parked or not is_live or is_held:
        return False
    tx.tables.execute(_LOSE, (run, tx.owner))
    tx.tables.execute(_PLACE, ([run],))
    return True


def hand_over(tx: Transaction, lease: SqlLease) -> None:
    """Give a run that this process holds back to its queue."""
    tx.fence(lease)
    tx.tables.execute(_PLACE, ([lease.run],))
    tx.let_go(lease)


def park(tx: Transaction, lease: SqlLease, awaits: Sequence[str]) -> bool:
    """Release a run until a message comes or one of these children ends; False when that has happened already.

    The end of a child and a message lock this lease, so each is either seen here, or finds the run parked.
    """
    tx.fence(lease)
    topics = [*tx.state(lease).waits.values(), CANCEL]
    tables = tx.tables
    if tables.execute(_HAS_MESSAGE, (lease.run, topics)).fetchone() is not None:
        return False
    if awaits and tables.execute(_HAS_ENDED, (list(awaits),)).fetchone() is not None:
        return False
    tables.execute(_PARK, (list(awaits), lease.run))
    tx.let_go(lease)
    return True


def acquire_placed(tx: Transaction, state: State, number: int, at: Moment) -> SqlLease | None:
    """Take the lease of a run for a placement; None when another placement or an end came first."""
    row = tx.tables.execute(_LEASE, (state.run,)).fetchone()
    if row is None:
        return None
    _, is_placed, _, placed, lost_owner, is_live = row
    if not is_placed or placed != number or not is_live:
        return None
    lease = tx.grant(state.run, state)
    tx.catch_up(lease)
    if lost_owner:
        tx.tables.execute("UPDATE leases SET lost_owner = NULL WHERE run = ?", (state.run,))
        adopted = Adopted(owner=tx.owner, previous_owner=lost_owner)
        tx.append(lease, f"adopted:{lease.epoch}", at, adopted, encode(adopted))
    return lease


def sweep(tx: Transaction, stale_seconds: float) -> tuple[int, int]:
    """Place again what silent processes own, and what was claimed and never begun; how many of each."""
    if not tx.tables.execute("SELECT pg_try_advisory_xact_lock(hashtextextended('deputy sweep', 0))").fetchone()[0]:
        return (0, 0)
    return tuple(tx.tables.execute("SELECT taken, claimed FROM sweep(?)", (stale_seconds,)).fetchone())


def enter_worker(
    tx: Transaction, labels: Sequence[str], slots: int | None, default: int, stale_seconds: float, keys: Sequence[str]
) -> int:
    """Write what this worker tells the others; its row exists, because its heartbeat comes first."""
    tx.tables.serialize("workers")
    others = tx.tables.execute(_OTHERS, (tx.owner, stale_seconds, list(labels), list(labels))).fetchall()
    for other, host in others:
        if slots not in (None, other):
            raise UsageError(
                "--concurrency",
                slots,
                f"a worker on {host} serves the same runs with {other}; give {other}, or stop the other workers first",
            )
    chosen = slots or next((other for other, _ in others), default)
    tx.tables.execute(_ENTER, (list(labels), chosen, list(keys), tx.owner))
    return chosen


def leave_workers(tx: Transaction) -> None:
    """Write that this worker takes no further runs."""
    tx.tables.execute("UPDATE owners SET draining = true WHERE owner = ?", (tx.owner,))
