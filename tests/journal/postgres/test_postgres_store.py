"""What works beside a running journal on a Postgres store: ending late runs, nested runs, retention, rate limits."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from tests.journal.postgres.test_postgres_writer import journal_on
from tests.support.postgres import emptied_database

from deputy import Deputy
from deputy.core.errors import Error, NotAdmitted, UnknownRun
from deputy.core.events import ToolCallEnded
from deputy.core.limits import Budget
from deputy.core.rate_limit import SlotRequest
from deputy.core.request import Grant
from deputy.journal.expire import expire_overdue
from deputy.journal.nested import nested_amounts, reserve
from deputy.journal.postgres.postgres_journal import PostgresJournal
from deputy.journal.postgres.postgres_queries import PostgresQueries
from deputy.journal.postgres.postgres_store import PostgresStore
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress
from deputy.journal.retention import pin, prune, prune_expired
from deputy.journal.shared_rate_limit import JournalRateLimitStore
from deputy.testing.queries_suite import completed, opened

if TYPE_CHECKING:
    from pathlib import Path

    from deputy.core.rate_limit import SlotShare

RUN = "sess_1_root00"


def test_a_late_run_of_another_process_is_ended_and_its_process_fenced(tmp_path: Path) -> None:
    store = PostgresStore(emptied_database(), tmp_path)

    async def work() -> None:
        async with journal_on(store.address.url, tmp_path) as journal:
            start = opened(RUN)
            await journal.begin(RUN, replace(start, lineage=replace(start.lineage, deadline=1.0)))
            state = await journal.state(RUN)
            assert state is not None
            assert await asyncio.to_thread(expire_overdue, store, [state]) == [state]
            ended = await journal.state(RUN)
            assert ended is not None
            assert not ended.is_live
            # Only the first one ends it.
            assert await asyncio.to_thread(expire_overdue, store, [state]) == []

    asyncio.run(work())


def test_a_nested_run_reserves_half_of_what_is_left(tmp_path: Path) -> None:
    store = PostgresStore(emptied_database(), tmp_path)

    async def work() -> None:
        async with journal_on(store.address.url, tmp_path) as journal:
            grant = Grant(budget=Budget(requests=8))
            await journal.begin(RUN, replace(opened(RUN), grant=grant))

            def twice() -> list[int | None]:
                found = [reserve(store, RUN, f"sess_1_nest{n}", 64, store).budget.requests for n in range(2)]
                with store.queries() as queries:
                    assert [amount.requests for _, _, amount in nested_amounts(queries, RUN)] == found
                with pytest.raises(NotAdmitted, match="is not in postgres://"):
                    reserve(store, "sess_1_unknown", "sess_1_nest3", 64, store)
                return found

            assert await asyncio.to_thread(twice) == [4, 2]

    asyncio.run(work())


def test_old_runs_are_removed_unless_pinned(tmp_path: Path) -> None:
    store = PostgresStore(emptied_database(), tmp_path)

    async def work() -> None:
        async with journal_on(store.address.url, tmp_path) as journal:
            lease = await journal.begin(RUN, opened(RUN))
            assert lease is not None
            await journal.finish(lease, "returned:0", completed(RUN))

    asyncio.run(work())
    pin(store, RUN, pinned=True)
    assert prune(store, time.time() + 60) == []
    pin(store, RUN, pinned=False)
    assert [tree.root for tree in prune(store, time.time() + 60)] == [RUN]
    with store.queries() as queries:
        assert queries.ids() == []


@pytest.mark.rule("store.beat")
def test_a_machine_with_a_wrong_clock_removes_no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PostgresStore(emptied_database(), tmp_path)

    async def work() -> None:
        async with journal_on(store.address.url, tmp_path) as journal:
            lease = await journal.begin(RUN, opened(RUN))
            assert lease is not None
            await journal.finish(lease, "returned:0", completed(RUN))
            await journal.deliver(RUN, "caller")
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 30 * 86_400)
        async with Deputy("offline:scout", store=store.address.url, home=tmp_path, workspace=tmp_path):
            with store.queries() as queries:
                assert queries.ids() == [RUN]

    asyncio.run(work())


def test_a_rate_limit_holds_back_the_processes_of_all_machines(tmp_path: Path) -> None:
    async def work(url: str) -> None:
        async with journal_on(url, tmp_path) as one, journal_on(url, tmp_path) as other:
            ours, theirs = JournalRateLimitStore(one, "acme/key"), JournalRateLimitStore(other, "acme/key")
            now = time.monotonic()
            await ours.hold(now + 100)
            assert 90 < await theirs.next_start(now, 0.1) <= 101
            assert not theirs.is_calm(now)
            shares: list[SlotShare | None] = []
            given = asyncio.Event()

            def take(share: SlotShare | None) -> None:
                shares.append(share)
                given.set()

            ours.share(SlotRequest(now=now, active=8, wanted=8, throttled=now), take)
            await given.wait()
            (share,) = shares
            assert share is not None
            assert (share.limit, share.until > now) == (4.0, True)
            assert share.until < now + 3600

    asyncio.run(work(emptied_database()))


def test_one_error_of_two_processes_is_one_row(tmp_path: Path) -> None:
    error = Error(type="storage", message="Full.", recoverable=True, recommendation="Free some space.")

    async def work(url: str) -> list[tuple[str, int]]:
        async with journal_on(url, tmp_path) as one, journal_on(url, tmp_path) as other:
            leases = [await one.begin(RUN, opened(RUN)), await other.begin("sess_2_other0", opened("sess_2_other0"))]
            async with asyncio.TaskGroup() as group:
                for journal, lease in zip((one, other), leases, strict=True):
                    assert lease is not None
                    for n in range(5):
                        group.create_task(journal.append(lease, f"tool:{n}", ToolCallEnded(tool="t", error=error)))
            return await one.read(lambda queries: [(row.message, row.count) for row in queries.errors(10)])

    assert asyncio.run(work(emptied_database())) == [("Full.", 10)]


@pytest.mark.rule("store.prune")
def test_one_process_at_a_time_removes_old_runs(tmp_path: Path) -> None:
    url = emptied_database()
    store = PostgresStore(url, tmp_path)

    async def work() -> None:
        journal = await asyncio.to_thread(PostgresJournal, store.address, tmp_path)
        async with journal:
            lease = await journal.begin("sess_1_old000", opened("sess_1_old000"))
            assert lease is not None
            await journal.finish(lease, "returned:0", completed("sess_1_old000"))
            await journal.deliver("sess_1_old000", "me")

    asyncio.run(work())
    later = store.now() + 3600
    removed: list[str] = []
    with store.pruning() as is_alone:
        assert is_alone
        assert prune_expired(store, later, 60.0, afterwards=lambda: removed.append("meanwhile")) == 0
    assert prune_expired(store, later, 60.0, afterwards=lambda: removed.append("alone")) == 1
    assert removed == ["alone"]


@pytest.mark.rule("store.follow")
def test_the_states_of_all_changed_runs_are_one_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PostgresStore(emptied_database(), tmp_path)
    asked: list[str] = []
    real = PostgresSession.fetch

    def fetch(session: PostgresSession, query: str, *values: Any) -> list[tuple[Any, ...]]:
        asked.append(query)
        return real(session, query, *values)

    async def work() -> None:
        async with await asyncio.to_thread(PostgresJournal, store.address, tmp_path) as journal:
            for number in range(20):
                await journal.begin(f"sess_1_{number:06}", opened(f"sess_1_{number:06}"))

    with store.queries() as queries:
        cursor = queries.cursor()
        asyncio.run(work())
        monkeypatch.setattr(PostgresSession, "fetch", fetch)
        changes = queries.follow(cursor)
    assert [state.run for state in changes.runs] == [f"sess_1_{number:06}" for number in range(20)]
    assert len(asked) == 4


@pytest.mark.rule("store.follow")
def test_a_transaction_that_has_ended_since_a_snapshot_holds_no_follower_back() -> None:
    address = StoreAddress(emptied_database())
    with closing(PostgresSession(address)) as busy, closing(PostgresSession(address)) as reader:
        busy.run("BEGIN; LOCK TABLE events IN ROW EXCLUSIVE MODE; SELECT pg_current_xact_id()")
        # A later transaction that has ended: the first is within the snapshot.
        reader.fetch("SELECT pg_current_xact_id()")
        take = "SELECT s::text, pg_snapshot_xmax(s)::text::bigint FROM pg_current_snapshot() s"
        snapshot, end = reader.fetch(take)[0]
        query = "SELECT id, is_known FROM first_active($1::text::pg_snapshot)"
        active, is_known = reader.fetch(query, snapshot)[0]
        busy.run("COMMIT")
        after = reader.fetch(query, snapshot)[0]
    assert is_known
    assert active < end
    assert after == (end, True)


def test_an_id_with_a_zero_byte_is_an_unknown_run(tmp_path: Path) -> None:
    store = PostgresStore(emptied_database(), tmp_path)
    with store.queries() as queries:
        assert queries.state("a\0b") is None
        assert list(queries.records("a\0b")) == []
        assert queries.get("a\0b", "requested") is None

    async def work() -> None:
        async with await asyncio.to_thread(PostgresJournal, store.address, tmp_path) as journal:
            with pytest.raises(UnknownRun):
                await journal.acquire("a\0b")
            with pytest.raises(UnknownRun):
                await journal.send("a\0b", "answer", "answer:1", b'"x"')

    asyncio.run(work())


@pytest.mark.rule("store.roles")
def test_a_process_with_an_odd_name_is_listed_and_stops_no_reader(tmp_path: Path) -> None:
    address = StoreAddress(emptied_database())
    names = ["x", "a/b", f"a/b/{'9' * 5000}/c/d", "a/b/7/c/d"]
    with closing(PostgresSession(address)) as session:
        for name in names:
            session.fetch("SELECT beat($1, 1, $1, 'v', 0)", name[:40])
            session.fetch("UPDATE owners SET owner = $1 WHERE owner = $2", name, name[:40])
            session.fetch("INSERT INTO leases (run, owner, epoch) VALUES ($1, $1, 1)", name)
        session.run("UPDATE owners SET beat = beat - interval '20 s'")
    with PostgresQueries.open(address) as queries:
        assert sorted(pid for _, pid, *_ in queries.processes()) == ["7", "?", "?", "?"]
        assert queries.holders().keys() == set(names)
