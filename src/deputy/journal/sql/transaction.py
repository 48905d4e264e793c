"""One transaction: records appended under leases, and the states that follow from them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Raw, json

from deputy.core.errors import LeaseHeld, LeaseLost, StorageCorrupt, UnknownRun
from deputy.core.events import (
    CANCEL,
    AdmissionRefused,
    CancelRequested,
    Delivered,
    Joined,
    QuestionAnswered,
    Record,
    Resumed,
    Returned,
    Spawned,
    encode,
    errors_of,
    trace_of,
)
from deputy.core.state import State, apply, is_awaited, may_answer
from deputy.engine.ports.queries import DamagedRecord
from deputy.journal import error_log
from deputy.journal.sql.rows import (
    EVENT_UNDER_KEY,
    EVENTS_AFTER,
    NO_LIMIT,
    event_row,
    is_whole_message,
    message_sum,
    read_event,
    run_row,
    state_row,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.errors import Error
    from deputy.core.events import Event, Moment
    from deputy.journal.sql.rows import LeaseRow, Row
    from deputy.journal.sql.sql_store import SqlTables

FIRST = "requested"
"""The key of a run's first record."""


class SqlLease:
    """The right to write the records of one run, until another process takes it; with the run's state."""

    __slots__ = ("epoch", "queue", "run", "state", "trouble")

    def __init__(self, run: str, epoch: int, state: State, queue: str = "") -> None:
        self.run = run
        self.epoch = epoch
        self.queue = queue
        """The queue of the workers that carry it out; empty when the run stays with its process."""
        self.state = state
        """As of the last commit."""
        self.trouble: BaseException | None = None
        """Why a record was lost: no later record is written, and the lease must be acquired again."""


class LeaseTable:
    """The leases; changes are collected and written together before the next read."""

    def __init__(self, tables: SqlTables, owner: str) -> None:
        self._tables = tables
        self._owner = owner
        self._given: list[Row] = []
        self._given_up: list[Row] = []
        self._placed: list[Row] = []

    def give_first(self, run: str) -> int:
        """Grant the first lease of a run and return its epoch; the transaction fails if the run already had one."""
        self._given.append((run, self._owner, 1))
        return 1

    def give(self, run: str, epoch: int) -> None:
        """Grant the lease of a run, replacing its holder."""
        self.write()
        self._tables.grant(run, self._owner, epoch)

    def give_workers(self, run: str, queue: str) -> None:
        """Let the workers of a queue take the first lease of a run."""
        self._placed.append((run, queue))

    def give_up(self, run: str, epoch: int) -> None:
        """Release a lease, unless another process holds it by now."""
        self._given_up.append((run, epoch, self._owner))

    def has(self, run: str, epoch: int) -> bool:
        """Whether this process holds this lease."""
        self.write()
        return self._tables.holds(run, epoch, self._owner)

    def holder(self, run: str) -> LeaseRow | None:
        """The lease of a run."""
        self.write()
        return self._tables.holder(run)

    def write(self) -> None:
        """Write the collected changes."""
        if self._given:
            self._tables.put("leases", self._given)
            self._given.clear()
        if self._placed:
            self._tables.put("placed", self._placed)
            self._placed.clear()
        if self._given_up:
            self._tables.put("released", self._given_up)
            self._given_up.clear()


class Transaction:
    """The writes of one commit."""

    def __init__(
        self,
        tables: SqlTables,
        location: str,
        owner: str,
        *,
        fenced: dict[str, SqlLease] | None = None,
        is_hopeful: bool = False,
    ) -> None:
        """`fenced` are leases known to be valid. If `is_hopeful`, keys count as new; a duplicate fails the whole."""
        self.owner = owner
        self._tables = tables
        self._is_hopeful = is_hopeful
        self._rows: list[Row] = []
        """Records that are not written yet."""
        self._keys: set[tuple[str, str]] = set()
        self.granted: set[str] = set()
        self.released: set[str] = set()
        self.has_removed = False
        """Whether records were removed; the commit marker may name one of them."""
        self.notices: set[str] = set()
        """The runs that ended or got a message, for processes that wait for them."""
        self.callers: set[str] = set()
        """The callers of ended runs, which may be parked until then."""
        self._location = location
        self._states: dict[SqlLease, State] = {}
        self._fenced: dict[str, SqlLease] = {} if fenced is None else fenced
        self._leases = LeaseTable(tables, owner)

    @property
    def tables(self) -> SqlTables:
        """The tables, after the pending rows were written to them."""
        if self._rows:
            rows, self._rows = self._rows, []
            self._tables.put("events", rows)
        self._leases.write()
        return self._tables

    def state(self, lease: SqlLease) -> State:
        """The state of a run with the records of this transaction."""
        return self._states.get(lease, lease.state)

    def fence(self, lease: SqlLease) -> None:
        """Raise when the lease was taken over, or an earlier record was lost."""
        if lease.trouble is not None:
            raise lease.trouble
        if self._fenced.get(lease.run) is lease:
            return
        if not self._leases.has(lease.run, lease.epoch):
            raise LeaseLost(lease.run, lease.epoch)
        self._fenced[lease.run] = lease

    def append(self, lease: SqlLease, key: str, at: Moment, event: Event, body: bytes) -> Record:
        """Add a record; if the run already has one under this key, return that one."""
        self.fence(lease)
        state = self.state(lease)
        record = Record(run=lease.run, seq=state.seq + 1, key=key, at=at.at, clock=at.clock, event=event)
        row = event_row(record, body)
        if self._is_hopeful:
            self._rows.append(row)
            self._keys.add((lease.run, key))
        elif not self._tables.add_event(row):
            return self.existing(lease.run, key)
        state = self._states[lease] = apply(state, record)
        if isinstance(event, Resumed):
            # Messages to an earlier round neither cancel this one nor answer it.
            self._tables.execute("UPDATE inbox SET is_taken = TRUE WHERE run = ? AND NOT is_taken", (lease.run,))
        errors: Sequence[Error] = errors_of(event)
        if errors and isinstance(event, Returned | AdmissionRefused):
            errors = error_log.not_met(self.tables, lease.run, errors)
        if errors:
            self._tables.serialize("errors")
        for error in errors:
            error_log.write(self._tables, error, at.at, error_log.context_of(state), trace_of(event))
        return record

    def mark(self, lease: SqlLease, key: str, at: Moment, event: Event, body: bytes) -> None:
        """Add a record that no decision depends on, unless the key exists."""
        self.fence(lease)
        if self._is_hopeful or not self.has(lease.run, key):
            self.append(lease, key, at, event, body)

    def has(self, run: str, key: str) -> bool:
        """Whether a run has a record under a key."""
        query = "SELECT 1 FROM events WHERE run = ? AND key = ?"
        return (run, key) in self._keys or self._tables.execute(query, (run, key)).fetchone() is not None

    def existing(self, run: str, key: str) -> Record:
        """The record under an existing key."""
        record = read_event(self.tables.execute(EVENT_UNDER_KEY, (run, key)).fetchone())
        if isinstance(record, DamagedRecord):
            raise StorageCorrupt(self._location, f"{record.where}: {record.what}")
        return record

    def begin(self, run: str, at: Moment, event: Event, body: bytes) -> SqlLease | None:
        """Make a run with its first record, and take its lease; None when there is such a run already."""
        if self._is_hopeful:
            lease = self._fenced[run] = SqlLease(run, self._leases.give_first(run), State())
            self.granted.add(run)
        elif self._tables.execute("SELECT 1 FROM runs WHERE run = ?", (run,)).fetchone() is not None:
            return None
        else:
            lease = self.grant(run, State())
        self.append(lease, FIRST, at, event, body)
        return lease

    def begin_placed(self, run: str, at: Moment, event: Event, body: bytes, queue: str) -> SqlLease | None:
        """Make a run with its first record for the workers of a queue; None when there is such a run already."""
        if (
            not self._is_hopeful
            and self._tables.execute("SELECT 1 FROM runs WHERE run = ?", (run,)).fetchone() is not None
        ):
            return None
        self._leases.give_workers(run, queue)
        lease = self._fenced[run] = SqlLease(run, 0, State(), queue)
        self.append(lease, FIRST, at, event, body)
        del self._fenced[run]
        return lease

    def spawn(self, lease: SqlLease, key: str, child: str, at: Moment, event: Event, body: bytes) -> SqlLease | None:
        """Record a spawn and create the child, for workers if its caller is theirs; None when that was done before."""
        self.fence(lease)
        if not self._is_hopeful and self.has(lease.run, key):
            return None
        if lease.queue:
            born = self.begin_placed(child, at, event, body, lease.queue)
        else:
            born = self.begin(child, at, event, body)
        if born is not None:
            spawned = Spawned(child=child)
            self.append(lease, key, at, spawned, encode(spawned))
        return born

    def grant(self, run: str, state: State, *, is_forced: bool = False) -> SqlLease:
        """Take the lease of a run that no other process holds, or any if forced; our own older lease becomes void."""
        holder = self.holder(run)
        if holder is not None and holder.owner != self.owner and not (is_forced or holder.is_orphaned):
            raise LeaseHeld(run, f"process {holder.pid}")
        epoch = 1 if holder is None else holder.epoch + 1
        self._leases.give(run, epoch)
        self.granted.add(run)
        self._fenced.pop(run, None)
        return SqlLease(run, epoch, state, "" if holder is None else holder.queue)

    def holder(self, run: str) -> LeaseRow | None:
        """The lease of a run."""
        return self._leases.holder(run)

    def is_held(self, run: str) -> bool:
        """Whether a living process holds the run."""
        holder = self.holder(run)
        return holder is not None and bool(holder.owner) and not holder.is_orphaned

    def release(self, lease: SqlLease) -> None:
        """Release a lease."""
        self._leases.give_up(lease.run, lease.epoch)
        self.let_go(lease)

    def let_go(self, lease: SqlLease) -> None:
        """Note that a statement took the lease from this process."""
        self.released.add(lease.run)
        self._fenced.pop(lease.run, None)

    def finish(self, lease: SqlLease, key: str, at: Moment, event: Event, body: bytes) -> Record:
        """Record the end of a run and release its lease."""
        record = self.append(lease, key, at, event, body)
        self.release(lease)
        return record

    def catch_up(self, lease: SqlLease) -> None:
        """Fold in the records that other processes wrote before this lease was granted."""
        for row in self.tables.execute(EVENTS_AFTER, (lease.run, lease.state.seq, NO_LIMIT)).fetchall():
            record = read_event(row)
            if not isinstance(record, DamagedRecord):
                lease.state = apply(lease.state, record)

    def deliver(self, run: str, at: Moment, to: str, state: State) -> None:
        """Record that the result of an ended run was delivered."""
        holder = self.holder(run)
        if self._is_hopeful and holder is not None and not (holder.owner or state.is_live):
            # It is free. If another process adds a record meanwhile, the seqs collide and the transaction is redone.
            lease = self._fenced[run] = SqlLease(run, holder.epoch, state)
            self._add_delivered(lease, at, to)
            del self._fenced[run]
            return
        if holder is not None and holder.owner and not holder.is_orphaned:
            raise LeaseHeld(run, f"process {holder.pid}")
        lease = self.grant(run, state)
        self.catch_up(lease)
        self._add_delivered(lease, at, to)
        self.release(lease)

    def _add_delivered(self, lease: SqlLease, at: Moment, to: str) -> None:
        if not lease.state.is_live:
            event = Delivered(to=to)
            self.append(lease, f"delivered:{lease.state.round}", at, event, encode(event))

    def join(self, lease: SqlLease, key: str, at: Moment, child: State) -> Record:
        """Record the join here and the delivery with the child."""
        self.fence(lease)
        joined = Joined(child=child.run, round=child.round, waited=child.waited, waited_until=child.waited_until)
        # The child may be resumed already; this joins its earlier outcome.
        with suppress(LeaseHeld):
            self.deliver(child.run, at, lease.run, child)
        return self.append(lease, key, at, joined, encode(joined))

    def send(self, run: str, topic: str, key: str, body: bytes) -> bool:
        """Send a run a message, once per key; whether the message under the key is this one."""
        if self._tables.execute("SELECT 1 FROM runs WHERE run = ?", (run,)).fetchone() is None:
            raise UnknownRun(run)
        row = (run, topic, key, body, message_sum(run, topic, key, body))
        query = (
            "INSERT INTO inbox (run, topic, key, body, sum) VALUES (?, ?, ?, ?, ?) ON CONFLICT (run, key) DO NOTHING"
        )
        self._tables.execute(query, row)
        self.notices.add(run)
        under_key = "SELECT body FROM inbox WHERE run = ? AND key = ?"
        return self._tables.execute(under_key, (run, key)).fetchone()[0] == body

    def has_other(self, run: str, body: bytes) -> bool:
        """Whether an untaken message of a run has another body."""
        query = "SELECT 1 FROM inbox WHERE run = ? AND NOT is_taken AND body != ?"
        return self._tables.execute(query, (run, body)).fetchone() is not None

    def receive_message(self, lease: SqlLease, key: str, at: Moment, topic: str) -> Record | None:
        """Turn the oldest message that answers this wait into a record; None when there is none."""
        self.fence(lease)
        if self.has(lease.run, key):
            return self.existing(lease.run, key)
        query = "SELECT id, key, body, sum FROM inbox WHERE run = ? AND topic = ? AND NOT is_taken ORDER BY id"
        for number, name, body, total in self._tables.execute(query, (lease.run, topic)).fetchall():
            if not may_answer(name, key):
                if not is_awaited(name, self.state(lease)):
                    # If it stayed, the run would be polled for it again and again.
                    self._tables.execute("DELETE FROM inbox WHERE id = ?", (number,))
                continue
            self._tables.execute("UPDATE inbox SET is_taken = TRUE WHERE id = ?", (number,))
            if is_whole_message((lease.run, topic, name, body, total)):
                event = (
                    CancelRequested(reason=_reason(body))
                    if topic == CANCEL
                    else QuestionAnswered(topic=topic, body=Raw(body))
                )
                return self.append(lease, key, at, event, encode(event))
        return None

    def index(self) -> None:
        """Write the states that this transaction has changed."""
        tables = self.tables
        turned: list[Row] = []
        moved: list[Row] = []
        for lease, state in self._states.items():
            before = lease.state
            if not state.is_live and (before.is_live or not before.seq):
                self.notices.add(lease.run)
                if lease.queue and state.parent is not None:
                    self.callers.add(state.parent)
            if before.seq and (before.is_live, before.is_settled) == (state.is_live, state.is_settled):
                turned.append((state.last_at, *state_row(state), lease.run))
            else:
                moved.append(run_row(lease.run, state))
        # No indexed column is set, so a turn updates no index.
        if turned:
            tables.put("states", turned)
        if moved:
            tables.put("runs", moved)

    def announce(self) -> None:
        """Tell other processes which runs ended or got a message."""
        if self.notices:
            self.tables.announce(sorted(self.notices), sorted(self.callers))

    @property
    def last(self) -> tuple[str, int] | None:
        """One of the added records by run and seq; None when nothing was added."""
        lease, state = next(iter(self._states.items()), (None, None))
        return None if lease is None or state is None else (lease.run, state.seq)

    def flush_pending(self) -> None:
        """After the commit: give the leases their new states."""
        for lease, state in self._states.items():
            lease.state = state


def _reason(body: bytes) -> str:
    try:
        return json.decode(body, type=str)
    except ValueError:
        return ""
