"""One transaction: what is appended, joined, delivered and received under leases."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.journal.conftest import ERROR, completed, partial, requested

from deputy.core.errors import LeaseHeld, LeaseLost, StorageCorrupt
from deputy.core.events import (
    CancelRequested,
    Event,
    Joined,
    Moment,
    Noted,
    QuestionAsked,
    Resumed,
    Returned,
    RunOpened,
    Spawned,
    ToolCallEnded,
    encode,
)
from deputy.core.outcome import Completed
from deputy.core.request import Lineage
from deputy.core.state import State, answer_key
from deputy.journal.process_identity import this_process
from deputy.journal.sql.transaction import SqlLease, Transaction
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_tables import SqliteTables

RUN, CHILD, OTHER = "sess_1_aaaaaa", "sess_1_bbbbbb", "sess_1_cccccc"
OPENED = RunOpened(lineage=Lineage.root(RUN))
DONE = Returned(outcome=Completed(lineage=OPENED.lineage, summary="done"))


def on_journal(use: Callable[[SqliteJournal, SqlLease], Awaitable[None]], home: Path, **options: Any) -> None:
    """Use a journal that has one live run."""

    async def main() -> None:
        async with SqliteJournal(home, **{"fsync": "off", **options}) as journal:
            lease = await journal.begin(RUN, OPENED)
            assert lease is not None
            await use(journal, lease)

    asyncio.run(main())


def dead_owner() -> dict[str, object]:
    return {"owner": msgspec.structs.replace(this_process(), boot="another")}


async def keys(journal: SqliteJournal, run: str) -> list[str]:
    return [record.key for record in await journal.records(run)]


async def child_of(journal: SqliteJournal, lease: SqlLease, run: str = CHILD) -> SqlLease:
    child = await journal.spawn(lease, f"spawn:{run}", run, requested(run, parent=RUN))
    assert child is not None
    return child


@pytest.mark.rule("deliver")
def test_a_join_is_recorded_with_the_caller_and_delivers_the_child(home: Path) -> None:
    async def use(journal: SqliteJournal, lease: SqlLease) -> None:
        child = await child_of(journal, lease)
        await journal.finish(child, "returned:0", Returned(outcome=completed(CHILD)))
        state = msgspec.structs.replace(child.state, waited=5.0, waited_until=7.0)
        joined = await journal.join(lease, "join", state)
        assert joined.event == Joined(child=CHILD, waited=5.0, waited_until=7.0)
        assert await keys(journal, CHILD) == ["requested", "returned:0", "delivered:0"]
        after = await journal.state(CHILD)
        assert after is not None
        assert after.is_settled
        # A replay joins the same outcome, and delivers it once.
        assert (await journal.join(lease, "join", state)).seq == joined.seq
        assert await keys(journal, CHILD) == ["requested", "returned:0", "delivered:0"]

    on_journal(use, home)


@pytest.mark.rule("deliver")
def test_an_outcome_of_a_child_that_works_again_is_joined_and_not_delivered(home: Path) -> None:
    async def use(journal: SqliteJournal, lease: SqlLease) -> None:
        child = await child_of(journal, lease)
        await journal.finish(child, "returned:0", Returned(outcome=partial(CHILD)))
        ended = child.state
        async with SqliteJournal(home, fsync="off") as theirs:
            again = await theirs.acquire(CHILD)
            await theirs.append(again, "resumed:1", Resumed(round=1))
            joined = await journal.join(lease, "join", ended)
            assert isinstance(joined.event, Joined)
            assert await keys(journal, CHILD) == ["requested", "returned:0", "resumed:1"]
            with pytest.raises(LeaseHeld, match="process"):
                await journal.deliver(CHILD, "caller")

    on_journal(use, home)


@pytest.mark.rule("deliver")
def test_a_live_run_of_a_dead_process_is_not_delivered(home: Path) -> None:
    async def use(mine: SqliteJournal, lease: SqlLease) -> None:
        async with SqliteJournal(home, fsync="off") as theirs:
            await theirs.deliver(RUN, "caller")
            assert await keys(theirs, RUN) == ["requested"]
            assert not await theirs.transact(lambda tx: tx.is_held(RUN))
        with pytest.raises(LeaseLost):
            await mine.append(lease, "note", Noted(content=""))

    on_journal(use, home, **dead_owner())


def test_a_run_is_held_by_a_living_process_only(home: Path) -> None:
    async def use(journal: SqliteJournal, lease: SqlLease) -> None:
        assert await journal.transact(lambda tx: (tx.is_held(RUN), tx.is_held(OTHER))) == (True, False)
        await journal.release(lease)
        assert not await journal.transact(lambda tx: tx.is_held(RUN))

    on_journal(use, home)


def test_a_lease_that_was_released_in_the_same_transaction_is_void(home: Path) -> None:
    async def use(journal: SqliteJournal, lease: SqlLease) -> None:
        def release_and_write(tx: Transaction) -> None:
            tx.release(lease)
            tx.fence(lease)

        with pytest.raises(LeaseLost):
            await journal.transact(release_and_write, RUN)

    on_journal(use, home)


def test_messages_to_an_earlier_round_are_taken_by_its_resume(home: Path) -> None:
    async def use(journal: SqliteJournal, lease: SqlLease) -> None:
        await journal.send(RUN, "answer", "one", b'"old"')
        await journal.finish(lease, "returned:0", DONE)
        again = await journal.acquire(RUN)
        await journal.append(again, "resumed:1", Resumed(round=1))
        assert await journal.receive_message(again, "recv", "answer") is None
        await journal.send(RUN, "answer", "two", b'"new"')
        assert await journal.receive_message(again, "recv", "answer") is not None

    on_journal(use, home)


@pytest.mark.rule("approve.exact")
def test_an_answer_waits_for_its_question_and_is_dropped_when_that_is_gone(home: Path) -> None:
    async def use(journal: SqliteJournal, lease: SqlLease) -> None:
        for key in ("q1", "q2"):
            await journal.append(lease, f"{key}.asked", QuestionAsked(topic="approval"))
        await journal.send(RUN, "approval", answer_key("q2"), b'"two"')
        await journal.send(RUN, "approval", answer_key("gone"), b'"gone"')
        assert await journal.receive_message(lease, "q1", "approval") is None
        left = "SELECT key FROM inbox WHERE NOT is_taken"
        assert await journal.transact(lambda tx: tx.tables.execute(left).fetchall()) == [(answer_key("q2"),)]
        assert await journal.receive_message(lease, "q2", "approval") is not None
        assert await journal.receive_message(lease, "q2", "approval") is not None, "it is a record now"
        assert await journal.transact(lambda tx: tx.tables.execute(left).fetchall()) == []

    on_journal(use, home)


def test_a_damaged_message_is_passed_over_and_a_message_is_sent_once(home: Path) -> None:
    async def use(journal: SqliteJournal, lease: SqlLease) -> None:
        assert await journal.send(RUN, "answer", "one", b'"x"')
        assert not await journal.send(RUN, "answer", "one", b'"other"')
        assert await journal.transact(lambda tx: (tx.has_other(RUN, b'"x"'), tx.has_other(RUN, b'"y"'))) == (
            False,
            True,
        )
        await journal.transact(lambda tx: tx.tables.execute("UPDATE inbox SET body = ?", (b'"y"',)))
        await journal.send(RUN, "answer", "two", b'"z"')
        received = await journal.receive_message(lease, "recv", "answer")
        assert received is not None
        assert bytes(received.event.body) == b'"z"'  # pyright: ignore
        assert not await journal.transact(lambda tx: tx.has_other(RUN, b""))

    on_journal(use, home)


@pytest.mark.parametrize(("body", "reason"), [(b'"enough"', "enough"), (b"5", ""), (b'{"a":1}', "")])
def test_a_cancel_whose_reason_is_no_text_cancels_too(home: Path, body: bytes, reason: str) -> None:
    async def use(journal: SqliteJournal, lease: SqlLease) -> None:
        await journal.send(RUN, "cancel", "stop", body)
        stopped = await journal.receive_message(lease, "cancel", "cancel")
        assert stopped is not None
        assert stopped.event == CancelRequested(reason=reason)

    on_journal(use, home)


def test_a_damaged_record_under_a_key_is_reported_and_not_replaced(home: Path) -> None:
    async def use(journal: SqliteJournal, lease: SqlLease) -> None:
        await journal.append(lease, "note", Noted(content="first"))
        await journal.transact(
            lambda tx: tx.tables.execute("UPDATE events SET body = ? WHERE key = 'note'", (b'{"kind":"noted"}',))
        )
        with pytest.raises(StorageCorrupt, match="record 2"):
            await journal.append(lease, "note", Noted(content="second"))
        state = await journal.state(RUN)
        assert state is not None
        again = await journal.transact(lambda tx: tx.grant(RUN, State()))
        await journal.transact(lambda tx: tx.catch_up(again))
        assert (again.state.seq, again.state.counts.notes) == (1, 0)

    on_journal(use, home)


def test_a_run_that_is_there_already_keeps_no_other_of_its_commit_from_beginning(home: Path) -> None:
    async def use(journal: SqliteJournal, lease: SqlLease) -> None:
        again, new, noted, marked = await asyncio.gather(
            journal.begin(RUN, OPENED),
            journal.begin(OTHER, RunOpened(lineage=Lineage.root(OTHER))),
            journal.append(lease, "note", Noted(content="n")),
            journal.transact(lambda tx: tx.mark(lease, "note", Moment(1.0, 1.0), DONE, encode(DONE))),
        )
        assert (again, noted.seq, marked) == (None, 2, None)
        assert new is not None
        assert (new.epoch, new.state.status) == (1, "requested")
        assert await keys(journal, RUN) == ["requested", "note"]
        assert await keys(journal, OTHER) == ["requested"]

    on_journal(use, home)


def test_an_error_that_a_run_has_met_is_logged_once_when_it_ends_with_it(home: Path) -> None:
    async def use(journal: SqliteJournal, lease: SqlLease) -> None:
        await journal.append(lease, "tool", ToolCallEnded(tool="Read", error=ERROR))
        await journal.finish(lease, "returned:0", Returned(outcome=partial(RUN)))
        count = "SELECT count(*), sum(count) FROM errors"
        assert await journal.transact(lambda tx: tx.tables.execute(count).fetchone()) == (1, 1)

    on_journal(use, home)


# --- runs of workers --------------------------------------------------------------------------------------------------


class WorkerTables(SqliteTables):
    """The tables of a store with workers, as far as a transaction sees them."""

    def __init__(self, tables: SqliteTables) -> None:
        super().__init__(tables.connection, "journal", 60.0)
        self.placed: list[Any] = []
        self.announced: list[Any] = []

    def put(self, what: Any, rows: Sequence[Any]) -> None:
        if what == "placed":
            self.placed += rows
        else:
            super().put(what, rows)

    def announce(self, runs: Sequence[str], callers: Sequence[str]) -> None:
        self.announced.append((runs, callers))


def spawn(tx: Transaction, lease: SqlLease, key: str, child: str) -> SqlLease | None:
    event: Event = requested(child, parent=lease.run)
    return tx.spawn(lease, key, child, Moment(1.0, 1.0), event, encode(event))


@pytest.mark.rule("spawn.once")
@pytest.mark.parametrize("is_hopeful", [True, False])
def test_a_child_of_a_run_of_workers_is_placed_for_them_once(home: Path, is_hopeful: bool) -> None:
    async def use(journal: SqliteJournal, lease: SqlLease) -> None:
        def do(tx: Transaction) -> None:
            tables = WorkerTables(tx.tables)  # pyright: ignore
            worker = Transaction(tables, "journal", tx.owner, is_hopeful=is_hopeful)
            ours = SqlLease(RUN, lease.epoch, lease.state, "queue")
            child = spawn(worker, ours, "spawn", CHILD)
            assert child is not None
            assert (child.queue, child.epoch) == ("queue", 0)
            with pytest.raises(LeaseLost):
                worker.fence(child)
            if not is_hopeful:
                worker.index()
                assert spawn(worker, ours, "spawn", OTHER) is None
                assert spawn(worker, ours, "again", CHILD) is None
            assert worker.last == (CHILD, 1)
            worker.index()
            assert tables.placed == [(CHILD, "queue")]

        await journal.transact(do)
        spawned = [record.event for record in await journal.records(RUN) if isinstance(record.event, Spawned)]
        assert spawned == [Spawned(child=CHILD)]
        assert await keys(journal, CHILD) == ["requested"]

    on_journal(use, home)


@pytest.mark.parametrize(("queue", "callers"), [("queue", [RUN]), ("", [])])
def test_the_end_of_a_run_of_workers_is_announced_with_its_caller(home: Path, queue: str, callers: list[str]) -> None:
    async def use(journal: SqliteJournal, lease: SqlLease) -> None:
        child = await child_of(journal, lease)

        def do(tx: Transaction) -> None:
            tables = WorkerTables(tx.tables)  # pyright: ignore
            worker = Transaction(tables, "journal", tx.owner)
            assert worker.last is None
            worker.announce()
            assert tables.announced == []
            held = SqlLease(CHILD, child.epoch, child.state, queue)
            event = Returned(outcome=completed(CHILD))
            worker.append(held, "note", Moment(1.0, 1.0), Noted(content=""), encode(Noted(content="")))
            worker.index()
            assert worker.notices == set()
            worker.finish(held, "returned:0", Moment(1.0, 1.0), event, encode(event))
            worker.index()
            worker.announce()
            assert tables.announced == [([CHILD], callers)]
            assert (worker.released, worker.last) == ({CHILD}, (CHILD, 3))
            assert not worker.is_held(CHILD)

        await journal.transact(do)

    on_journal(use, home)
