"""The journal: records once, in order, fenced by leases, with the state they leave beside them."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from deputy.core.errors import (
    Error,
    LeaseHeld,
    LeaseLost,
    StorageBusy,
    StorageCorrupt,
    StorageFailed,
    UnknownRun,
    UsageError,
)
from deputy.core.events import (
    Adopted,
    CancelRequested,
    Moment,
    Noted,
    QuestionAnswered,
    Record,
    Requested,
    Returned,
    RunOpened,
    Spawned,
    ToolCallEnded,
)
from deputy.core.outcome import Completed
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.core.state import State, replay
from deputy.journal.process_identity import this_process
from deputy.journal.sql.transaction import SqlLease
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

RUN = "sess_1_aaaaaa"
OPENED = RunOpened(lineage=Lineage.root(RUN))


def child_of(run: str, child: str) -> Requested:
    request = Request(
        session_id=child, target=Hop("a", "agent"), prompt="p", caller=Lineage.root(run), caller_grant=Grant()
    )
    return Requested(request=request, parent=run)


def on_journal(use: Callable[[SqliteJournal], Awaitable[None]], home: Path, **options: object) -> None:
    async def main() -> None:
        async with SqliteJournal(home, **{"fsync": "off", **options}) as journal:
            await use(journal)

    asyncio.run(main())


def dead_owner() -> dict[str, object]:
    """A journal of a process that everybody else takes for dead at once."""
    return {"owner": msgspec.structs.replace(this_process(), boot="another")}


@pytest.mark.parametrize("fsync", ["group", "each", "off"])
@pytest.mark.rule("journal.first")
def test_what_was_awaited_is_there_for_the_next_process(home: Path, fsync: str) -> None:
    async def write(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        for number in range(5):
            record = await journal.append(lease, f"note {number}", Noted(content=str(number)))
            assert record.seq == number + 2
            # Another connection sees it already: it is committed, not only queued.
            assert len(await journal.records(RUN)) == number + 2
            assert lease.state == replay(await journal.records(RUN))

    on_journal(write, home, fsync=fsync)
    reader = SqliteQueries.open(home)
    assert reader is not None
    with reader:
        records = [record for record in reader.records(RUN) if isinstance(record, Record)]
        assert [record.key for record in records] == ["requested", *(f"note {number}" for number in range(5))]
        assert reader.state(RUN) == replay(records)
        assert reader.fold(RUN) == reader.state(RUN)


def test_a_key_is_written_once_and_the_first_stands(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        first = await journal.append(lease, "key", Noted(content="first"))
        again = await journal.append(lease, "key", Noted(content="second"))
        assert again == first
        assert lease.state.counts.notes == 1
        assert await journal.begin(RUN, OPENED) is None

    on_journal(use, home)


def test_a_key_that_is_there_already_changes_nothing_for_the_rest_of_its_commit(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        first = await journal.append(lease, "key", Noted(content="first"))
        keys = [*(f"before {number}" for number in range(70)), "key", "new", "new", "after"]
        output = await asyncio.gather(*(journal.append(lease, key, Noted(content=key)) for key in keys))
        records = await journal.records(RUN)
        assert [record.key for record in records] == ["requested", "key", *keys[:70], "new", "after"]
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert output[70] == first
        assert output[71] == output[72] == records[-2]
        assert lease.state == replay(records) == await journal.state(RUN)

    on_journal(use, home)


@pytest.mark.rule("journal.first")
def test_after_a_record_that_was_lost_none_is_written_until_the_lease_is_taken_anew(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        with sqlite3.connect(home / "journal.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            journal.append_soon(lease, "lost", Noted(content=""))
            with pytest.raises(StorageBusy):
                await journal.wait_durable(lease)
            other.execute("ROLLBACK")
        other.close()
        with pytest.raises(StorageBusy):
            await journal.append(lease, "later", Noted(content=""))
        with pytest.raises(StorageBusy):
            await journal.spawn(lease, "child", "sess_1_bbbbbb", child_of(RUN, "sess_1_bbbbbb"))
        assert [record.key for record in await journal.records(RUN)] == ["requested"]
        anew = await journal.acquire(RUN)
        assert (await journal.append(anew, "later", Noted(content=""))).seq == 2

    on_journal(use, home, max_wait_seconds=0.1)


def test_what_is_appended_later_is_never_durable_before(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        for number in range(50):
            journal.append_soon(lease, f"soon {number}", Noted(content=""))
        await journal.append(lease, "last", Noted(content=""))
        assert [record.key for record in await journal.records(RUN, 1)] == [
            *(f"soon {number}" for number in range(50)),
            "last",
        ]

    on_journal(use, home)


def test_active_runs_are_left_out_of_the_unfinished_ones_while_this_process_holds_them(home: Path) -> None:
    async def use(mine: SqliteJournal) -> None:
        for run in ("sess_1_a", "sess_2_b", "sess_3_c"):
            await mine.begin(run, RunOpened(lineage=Lineage.root(run)))
        async with SqliteJournal(home) as theirs:
            await theirs.acquire("sess_2_b")
            found = await mine.unfinished({"sess_1_a", "sess_2_b"})
            assert [(one.state.run, one.is_orphaned) for one in found] == [("sess_2_b", False), ("sess_3_c", True)]

    on_journal(use, home, **dead_owner())


def test_many_appenders_share_a_commit(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        runs = [f"sess_{number}_aaaaaa" for number in range(32)]
        leases = [await journal.begin(run, RunOpened(lineage=Lineage.root(run))) for run in runs]
        before = await journal.changes()

        async def appender(lease: SqlLease) -> None:
            for number in range(10):
                await journal.append(lease, f"note {number}", Noted(content=""))

        commits = 0

        async def count() -> None:
            nonlocal commits, before
            while True:
                after = await journal.changes()
                commits, before = commits + (after != before), after

        async with asyncio.TaskGroup() as group:
            counting = group.create_task(count())
            async with asyncio.TaskGroup() as appenders:
                for lease in filter(None, leases):
                    appenders.create_task(appender(lease))
            counting.cancel()
        assert 1 <= commits <= 40
        assert [len(await journal.records(run)) for run in runs] == [11] * 32

    on_journal(use, home)


@pytest.mark.rule("spawn.once")
def test_a_child_is_born_in_the_transaction_that_records_it(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        parent = await journal.begin(RUN, OPENED)
        assert parent is not None
        child = await journal.spawn(parent, "call_1", "sess_1_child0", child_of(RUN, "sess_1_child0"))
        assert child is not None
        assert await journal.spawn(parent, "call_1", "sess_1_child1", child_of(RUN, "sess_1_child1")) is None
        assert await journal.state("sess_1_child1") is None
        # An id that is taken spawns nothing and leaves no record of it.
        assert await journal.spawn(parent, "call_2", "sess_1_child0", child_of(RUN, "sess_1_child0")) is None
        assert await journal.get(RUN, "call_2") is None
        spawned = [record.event for record in await journal.records(RUN) if isinstance(record.event, Spawned)]
        assert spawned == [Spawned(child="sess_1_child0")]
        assert [state.run for state in await journal.descendants(RUN)] == ["sess_1_child0"]

    on_journal(use, home)


@pytest.mark.rule("deliver")
def test_a_result_is_kept_until_it_is_delivered(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        outcome = Completed(lineage=OPENED.lineage, summary="done")
        await journal.finish(lease, "returned:0", Returned(outcome=outcome))
        assert [standing.state.run for standing in await journal.unfinished()] == [RUN]
        await journal.deliver(RUN, "whoever asked")
        await journal.deliver(RUN, "whoever asked")
        assert await journal.unfinished() == []
        state = await journal.state(RUN)
        assert state is not None
        assert state.is_settled
        assert state.oddities == 0

    on_journal(use, home)


def test_a_message_becomes_a_record_once(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        with pytest.raises(UnknownRun):
            await journal.send("sess_0_nobody", "answer", "one", b'"x"')
        for _ in range(2):
            await journal.send(RUN, "answer", "one", b'"x"')
        assert await journal.addressed() == [(RUN, "answer")]
        assert await journal.receive_message(lease, "recv", "other") is None
        taken = await journal.receive_message(lease, "recv", "answer")
        assert taken is not None
        assert taken.event == QuestionAnswered(topic="answer", body=Raw(b'"x"'))
        assert await journal.receive_message(lease, "recv", "answer") == taken
        await journal.send(RUN, "answer", "one", b'"x"')
        assert await journal.receive_message(lease, "recv again", "answer") is None
        with pytest.raises(UsageError, match="JSON"):
            await journal.send(RUN, "answer", "two", b"{")
        await journal.send(RUN, "cancel", "stop", b'"enough"')
        stopped = await journal.receive_message(lease, "cancel", "cancel")
        assert stopped is not None
        assert stopped.event == CancelRequested(reason="enough")

    on_journal(use, home)


def test_a_lease_that_was_taken_over_writes_nothing(home: Path) -> None:
    async def use(mine: SqliteJournal) -> None:
        lease = await mine.begin(RUN, OPENED)
        assert lease is not None
        await mine.append(lease, "before", Noted(content="mine"))
        async with SqliteJournal(home) as theirs:
            taken = await theirs.acquire(RUN)
            assert isinstance((await theirs.records(RUN))[-1].event, Adopted)
            mine.append_soon(lease, "soon", Noted(content="mine"))
            with pytest.raises(LeaseLost):
                await mine.append(lease, "after", Noted(content="mine"))
            with pytest.raises(LeaseLost):
                await mine.spawn(lease, "call", "sess_1_child0", child_of(RUN, "sess_1_child0"))
            with pytest.raises(LeaseLost):
                await mine.finish(lease, "returned:0", Returned(outcome=Completed(lineage=OPENED.lineage, summary="x")))
            with pytest.raises(LeaseLost):
                await mine.wait_durable(lease)
            await theirs.append(taken, "after", Noted(content="theirs"))
            notes = [record.event for record in await theirs.records(RUN) if isinstance(record.event, Noted)]
            assert notes == [Noted(content="mine"), Noted(content="theirs")]
            assert taken.state == replay(await theirs.records(RUN))

    on_journal(use, home, **dead_owner())


def test_a_lease_that_has_written_nothing_yet_is_lost_all_the_same(home: Path) -> None:
    async def use(mine: SqliteJournal) -> None:
        lease = await mine.begin(RUN, OPENED)
        assert lease is not None
        await mine.append(lease, "before", Noted(content="mine"))
        async with SqliteJournal(home) as theirs:
            await theirs.transact(lambda tx: tx.grant(RUN, lease.state))
            with pytest.raises(LeaseLost):
                await mine.append(lease, "after", Noted(content="mine"))
        assert [record.key for record in await mine.records(RUN)] == ["requested", "before"]

    on_journal(use, home, **dead_owner())


def test_a_lease_that_its_own_process_took_again_is_void(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        old = await journal.begin(RUN, OPENED)
        assert old is not None
        journal.append_soon(old, "before", Noted(content=""))
        new = await journal.acquire(RUN)
        with pytest.raises(LeaseLost):
            await journal.append(old, "after", Noted(content="old"))
        await journal.append(new, "after", Noted(content="new"))
        assert [record.key for record in await journal.records(RUN)] == ["requested", "before", "after"]
        assert new.state == replay(await journal.records(RUN))

    on_journal(use, home)


def test_a_lease_of_a_process_at_work_is_not_taken(home: Path) -> None:
    async def use(mine: SqliteJournal) -> None:
        await mine.begin(RUN, OPENED)
        async with SqliteJournal(home) as theirs:
            with pytest.raises(LeaseHeld, match="process"):
                await theirs.acquire(RUN)
            with pytest.raises(UnknownRun):
                await theirs.acquire("sess_0_nobody")

    on_journal(use, home)


def test_one_lost_lease_does_not_stop_the_others_of_its_group(home: Path) -> None:
    async def use(mine: SqliteJournal) -> None:
        lost, kept = (
            await mine.begin(RUN, OPENED),
            await mine.begin("sess_2_b", RunOpened(lineage=Lineage.root("sess_2_b"))),
        )
        assert lost is not None
        assert kept is not None
        async with SqliteJournal(home) as theirs:
            await theirs.acquire(RUN)
        leases = (lost, kept, lost, kept)
        output = await asyncio.gather(
            *(mine.append(lease, "x", Noted(content="")) for lease in leases), return_exceptions=True
        )
        assert isinstance(output[0], LeaseLost)
        assert isinstance(output[1], Record)
        assert output[1].seq == 2

    on_journal(use, home, **dead_owner())


def test_leases_are_given_up_in_an_orderly_end(home: Path) -> None:
    async def leave(journal: SqliteJournal) -> None:
        await journal.begin(RUN, OPENED)

    async def take(journal: SqliteJournal) -> None:
        lease = await journal.acquire(RUN)
        assert lease.epoch == 2

    on_journal(leave, home)
    on_journal(take, home)


def test_a_lock_that_is_held_too_long_is_a_typed_error_and_passes(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        blocker = sqlite3.connect(home / "journal.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageBusy, match=r"journal\.db.*locked"):
            await journal.append(lease, "x", Noted(content=""))
        # Readers do not mind.
        assert len(await journal.records(RUN)) == 1
        blocker.execute("ROLLBACK")
        blocker.close()
        assert (await journal.append(lease, "x", Noted(content=""))).seq == 2

    on_journal(use, home, max_wait_seconds=0.1)


def test_a_mistake_in_one_piece_of_work_harms_no_other(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        journal.append_soon(lease, "a", Noted(content=""))
        with pytest.raises(ZeroDivisionError):
            await journal.transact(lambda tx: 1 // 0)
        after = await journal.append(lease, "b", Noted(content=""))
        assert [record.seq for record in await journal.records(RUN)] == [1, 2, after.seq] == [1, 2, 3]

    on_journal(use, home)


def test_a_store_that_is_away_is_asked_once_for_all_who_wait(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def away(queries: SqliteQueries, run: str) -> None:
        asked.append(run)
        raise StorageBusy(str(home), "it is locked")

    async def use(journal: SqliteJournal) -> None:
        monkeypatch.setattr(SqliteQueries, "state", away)
        found = await asyncio.gather(*(journal.state(run) for run in ("a", "b", "c")), return_exceptions=True)
        assert [type(error) for error in found] == [StorageBusy] * 3
        assert asked == ["a"]

    on_journal(use, home)


def test_a_damaged_run_does_not_keep_others_from_being_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(queries: SqliteQueries, run: str) -> State:
        if run == "a":
            raise StorageCorrupt(str(home), "run a cannot be read")
        return State(run=run)

    async def use(journal: SqliteJournal) -> None:
        monkeypatch.setattr(SqliteQueries, "state", damaged)
        first, second = await asyncio.gather(*(journal.state(run) for run in "ab"), return_exceptions=True)
        assert isinstance(first, StorageCorrupt)
        assert second == State(run="b")

    on_journal(use, home)


def test_a_closed_journal_says_so(home: Path) -> None:
    async def main() -> None:
        journal = SqliteJournal(home)
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        await journal.close()
        await journal.close()
        with pytest.raises(StorageFailed, match="closed"):
            await journal.append(lease, "x", Noted(content=""))

    asyncio.run(main())


def test_progress_reaches_other_processes_and_is_bounded(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        for number in range(1000):
            journal.show_progress(RUN, b"%d" % number)
        await journal.append(lease, "x", Noted(content=""))
        shown = await journal.read(lambda reader: reader.progress(RUN))
        assert 1 <= len(shown) <= 256
        assert shown[-1].body == b"999"
        assert [record.key for record in await journal.records(RUN)] == ["requested", "x"]

    on_journal(use, home)


def test_a_reader_that_sees_the_end_of_a_run_can_see_all_that_it_showed_before(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        for number in range(5):
            journal.show_progress(RUN, b"%d" % number)
            await journal.append(lease, f"x{number}", Noted(content=""))
        journal.show_progress(RUN, b'"last"')
        await journal.release(lease)
        shown = [one.body for one in await journal.read(lambda reader: reader.progress(RUN))]
        assert shown == [b"0", b"1", b"2", b"3", b"4", b'"last"']

    on_journal(use, home)


def without_hunter2(body: bytes) -> bytes:
    return body.replace(b"hunter2", b"[redacted]")


def test_one_secret_among_much_progress_is_taken_out_alone(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        for number in range(100):
            journal.show_progress(RUN, b'"hunter2"' if number == 50 else b"%d" % number)
        await journal.append(lease, "x", Noted(content=""))
        shown = [one.body for one in await journal.read(lambda reader: reader.progress(RUN))]
        assert shown == [b'"[redacted]"' if number == 50 else b"%d" % number for number in range(100)]

    on_journal(use, home, mask=without_hunter2)


def test_a_damaged_mark_does_not_keep_what_follows_it_from_being_written(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        journal.append_begun(lease, "tool.begun", Noted(content="first"))
        await journal.wait_durable(lease)
        with sqlite3.connect(home / "journal.db", isolation_level=None) as other:
            other.execute("UPDATE events SET sum = x'00' WHERE key = 'tool.begun'")
        other.close()
        anew = await journal.acquire(RUN)
        journal.append_begun(anew, "tool.begun", Noted(content="again"))
        assert (await journal.append(anew, "tool", Noted(content=""))).key == "tool"

    on_journal(use, home)


def test_progress_that_cannot_be_cleaned_does_not_end_the_writer(home: Path) -> None:
    met = threading.Event()

    def redact(body: bytes) -> bytes:
        if b"odd" in body:
            met.set()
            raise ZeroDivisionError
        return body

    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        journal.show_progress(RUN, b'"odd"')
        assert await asyncio.to_thread(met.wait, 10)
        journal.show_progress(RUN, b'"fine"')
        assert (await journal.append(lease, "x", Noted(content=""))).seq == 2

    on_journal(use, home, mask=redact)


@pytest.mark.rule("deliver")
def test_a_result_is_delivered_by_a_process_that_knew_its_run_while_it_was_live(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, OPENED)
        assert lease is not None
        before = lease.state
        await journal.finish(lease, "returned:0", Returned(outcome=Completed(lineage=OPENED.lineage, summary="x")))
        await journal.transact(lambda tx: tx.deliver(RUN, Moment(1.0, 1.0), "caller", before))
        assert [record.key for record in await journal.records(RUN)][-1] == "delivered:0"

    on_journal(use, home)


def test_what_is_masked_stands_nowhere(home: Path) -> None:
    async def use(journal: SqliteJournal) -> None:
        lease = await journal.begin(RUN, RunOpened(lineage=Lineage.root(RUN), label="hunter2", prompt="hunter2"))
        assert lease is not None
        record = await journal.append(lease, "x", Noted(content="is hunter2"))
        # The caller goes on with what a replay would give.
        assert record.event == Noted(content="is [redacted]")
        journal.append_begun(lease, "y", Noted(content="hunter2"))
        await journal.send(RUN, "answer", "one", b'"hunter2"')
        await journal.receive_message(lease, "recv", "answer")
        journal.show_progress(RUN, b'"hunter2"')
        error = Error(type="t", message="hunter2", recoverable=True, recommendation="hunter2")
        await journal.append(lease, "tool", ToolCallEnded(tool="t", error=error, trace="hunter2"))
        assert lease.state == replay(await journal.records(RUN))

    on_journal(use, home, mask=without_hunter2)
    assert b"[redacted]" in (home / "journal.db").read_bytes()
    for path in home.rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes()


@pytest.mark.parametrize("run", ["", "x" * 201, "a\0b", "a\nb", "a\ud800b"])
def test_an_id_that_no_run_could_have_is_refused(home: Path, run: str) -> None:
    async def use(journal: SqliteJournal) -> None:
        with pytest.raises(UsageError, match="session_id"):
            await journal.begin(run, OPENED)

    on_journal(use, home)
