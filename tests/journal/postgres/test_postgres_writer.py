"""The writer of the Postgres journal under faults: lost commits, takeovers, outages and other clocks."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import time
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.postgres import emptied_database, migrated

from deputy.core.errors import LeaseHeld, LeaseLost, StorageAway
from deputy.core.events import ANSWER, Noted, QuestionAsked, Returned
from deputy.core.outcome import Completed
from deputy.core.request import Lineage
from deputy.core.state import ASKED, answer_key
from deputy.journal.postgres import postgres_writer
from deputy.journal.postgres.postgres_journal import PostgresJournal
from deputy.journal.postgres.postgres_queries import PostgresQueries
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress
from deputy.testing.postgres_server import OwnServer
from deputy.testing.queries_suite import opened

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

RUN, OTHER = "sess_1_root00", "sess_2_other0"
DONE = Returned(outcome=Completed(lineage=Lineage.root(RUN), summary="done"))


@asynccontextmanager
async def journal_on(url: str, folder: Path, **options: Any) -> AsyncGenerator[PostgresJournal]:
    async with await asyncio.to_thread(PostgresJournal, StoreAddress(url), folder, **options) as journal:
        yield journal


def administer(url: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(PostgresSession(StoreAddress(url))) as session:
        return session.fetch(query, *values)


def silence(url: str, journal: PostgresJournal) -> None:
    """Let a process look silent for an hour."""
    administer(url, "UPDATE owners SET beat = beat - interval '1 hour' WHERE owner = $1", journal.owner)


class LossySession(PostgresSession):
    """Loses the answer to the next commits, which happen, or the commits themselves."""

    losses: list[str] = []  # noqa: RUF012  what to lose, one after another

    def fetch(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._lossy(query.startswith("SELECT * FROM commit_batch"), super().fetch, query, *values)

    def run(self, script: str, seconds: float | None = None) -> None:
        self._lossy(script == "COMMIT", super().run, script, seconds)

    def _lossy(self, is_commit: bool, do: Any, *arguments: Any) -> Any:
        lost = self.losses.pop(0) if is_commit and self.losses else ""
        if lost == "commit":
            self.drop()
            raise ConnectionResetError("lost before it was sent")
        answer = do(*arguments)
        if lost == "answer":
            self.drop()
            raise ConnectionResetError("lost after it happened")
        return answer


@pytest.mark.rule("store.away")
@pytest.mark.parametrize("losses", [["answer"], ["commit"], ["commit", "answer"]])
def test_a_lost_commit_is_neither_repeated_nor_lost(
    losses: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_writer, "PostgresSession", LossySession)

    async def work(url: str) -> list[str]:
        async with journal_on(url, tmp_path) as journal:
            lease = await journal.begin(RUN, opened(RUN))
            assert lease is not None
            LossySession.losses[:] = losses
            record = await journal.append(lease, "note:1", Noted(content="one"))
            assert record.seq == 2
            await journal.append(lease, f"ask{ASKED}", QuestionAsked(topic=ANSWER, question="Which?"))
            # A batch that reads has its own way to commit.
            await journal.send(RUN, ANSWER, answer_key("ask"), b'"this"')
            LossySession.losses[:] = losses
            assert (await journal.receive_message(lease, "ask", ANSWER)) is not None
            assert not LossySession.losses
            await journal.append(lease, "note:2", Noted(content="two"))
            return [record.key for record in await journal.records(RUN)]

    keys = asyncio.run(work(emptied_database()))
    assert keys == ["requested", "note:1", f"ask{ASKED}", "ask", "note:2"]


@pytest.mark.rule("store.fence")
def test_a_process_that_lost_its_run_cannot_write(tmp_path: Path) -> None:
    async def work(url: str) -> None:
        async with journal_on(url, tmp_path) as ours, journal_on(url, tmp_path) as theirs:
            lease, other = await ours.begin(RUN, opened(RUN)), await ours.begin(OTHER, opened(OTHER))
            assert lease is not None
            assert other is not None
            with pytest.raises(LeaseHeld):
                await theirs.acquire(RUN)
            administer(
                url, "UPDATE owners SET beat = clock_timestamp() - interval '1 hour' WHERE owner = $1", ours.owner
            )
            taken = await theirs.acquire(RUN)
            assert taken.epoch == lease.epoch + 1
            results = await asyncio.gather(
                ours.append(lease, "note:1", Noted(content="late")),
                ours.append(other, "note:1", Noted(content="ours")),
                return_exceptions=True,
            )
            assert isinstance(results[0], LeaseLost)
            # The rest of the batch is written.
            assert getattr(results[1], "seq", None) == 2
            # Also when the other process has written nothing yet.
            administer(url, "UPDATE leases SET epoch = epoch + 1 WHERE run = $1", OTHER)
            with pytest.raises(LeaseLost):
                await ours.append(other, "note:2", Noted(content="late"))
            await theirs.append(taken, "note:1", Noted(content="theirs"))
            assert [getattr(one.event, "content", "") for one in await theirs.records(RUN)] == ["", "", "theirs"]

    asyncio.run(work(emptied_database()))


def test_a_record_that_postgres_cannot_hold_fails_alone(tmp_path: Path) -> None:
    async def work(url: str) -> None:
        async with journal_on(url, tmp_path) as journal:
            bad, good = await journal.begin(RUN, opened(RUN)), await journal.begin(OTHER, opened(OTHER))
            assert bad is not None
            assert good is not None
            results = await asyncio.gather(
                journal.append(bad, "note:\0", Noted(content="odd")),
                journal.append(good, "note:1", Noted(content="fine")),
                return_exceptions=True,
            )
            assert isinstance(results[0], Exception)
            assert getattr(results[1], "seq", None) == 2

    asyncio.run(work(emptied_database()))


@pytest.mark.rule("store.beat")
def test_a_stuck_writer_loses_its_leases(tmp_path: Path) -> None:
    stuck, go_on = threading.Event(), threading.Event()

    def stick(_: Any) -> None:
        stuck.set()
        go_on.wait(60)

    async def work(url: str) -> None:
        quick = {"beat_seconds": 0.05, "stale_seconds": 0.5}
        async with journal_on(url, tmp_path, **quick) as ours, journal_on(url, tmp_path, **quick) as theirs:
            lease = await ours.begin(RUN, opened(RUN))
            assert lease is not None
            waiting = ours.transact_soon(stick)
            await asyncio.to_thread(stuck.wait, 60)
            taken = None
            while taken is None:
                try:
                    taken = await theirs.acquire(RUN)
                except LeaseHeld:
                    await asyncio.sleep(0.02)
            go_on.set()
            await waiting
            with pytest.raises(LeaseLost):
                await ours.append(lease, "note:1", Noted(content="late"))
            await theirs.finish(taken, "returned:0", DONE)

    asyncio.run(work(emptied_database()))


@pytest.mark.rule("store.beat")
def test_a_sweep_trusts_silence_only_after_its_own_connection_was_healthy(tmp_path: Path) -> None:
    async def work(url: str) -> tuple[bool, bool]:
        async with journal_on(url, tmp_path) as ours, journal_on(url, tmp_path) as theirs:
            await ours.begin(RUN, opened(RUN))
            silence(url, ours)
            (just_connected,) = await theirs.unfinished()
            writer: Any = theirs._writer
            writer._healthy_since -= 3600
            (healthy,) = await theirs.unfinished()
            return just_connected.is_orphaned, healthy.is_orphaned

    assert asyncio.run(work(emptied_database())) == (False, True)


@pytest.mark.rule("store.beat")
def test_times_come_from_the_clock_of_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = emptied_database()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 30)

    async def work() -> float:
        async with journal_on(url, tmp_path) as journal:
            await journal.begin(RUN, opened(RUN))
            (record,) = await journal.records(RUN)
            assert abs(record.clock - record.at) < 1
            return record.at

    at = asyncio.run(work())
    assert abs(at - administer(url, "SELECT extract(epoch FROM clock_timestamp())::float8")[0][0]) < 25


@pytest.mark.rule("store.follow")
def test_a_follower_misses_no_commit_that_overlaps_another(tmp_path: Path) -> None:
    slow_row = (
        "INSERT INTO events (id, run, seq, key, at, clock, kind, body, sum)"
        " VALUES (first_position(), 'slow', 1, 'k', 0, 0, 'noted', '', '')"
    )

    async def work(url: str) -> None:
        async with journal_on(url, tmp_path) as journal:
            lease = await journal.begin(RUN, opened(RUN))
            assert lease is not None
            with (
                closing(PostgresQueries.open(StoreAddress(url))) as queries,
                closing(PostgresSession(StoreAddress(url))) as slow,
                closing(PostgresSession(StoreAddress(url))) as foreign,
            ):
                cursor = queries.cursor()
                # A transaction that does not touch the records holds back no follower.
                foreign.run("BEGIN; SELECT pg_current_xact_id()")
                await journal.append(lease, "note:1", Noted(content="first"))
                changes = queries.follow(cursor)
                assert [head.seq for head in changes.records] == [2]
                slow.run(f"BEGIN; LOCK TABLE events IN ROW EXCLUSIVE MODE; {slow_row}")
                await journal.append(lease, "note:2", Noted(content="second"))
                assert queries.follow(changes.cursor).is_empty
                slow.run("COMMIT")
                found = queries.follow(changes.cursor)
                assert [(head.run, head.seq) for head in found.records] == [("slow", 1), (RUN, 3)]

    asyncio.run(work(emptied_database()))


@pytest.mark.rule("store.away")
def test_a_database_that_restarts_loses_nothing_and_one_that_stays_away_is_reported(tmp_path: Path) -> None:
    # Another session of pytest may close the folders above its own.
    place = Path(tempfile.mkdtemp(prefix="deputy-pg-"))
    place.chmod(0o755)
    server = OwnServer(place)
    url = server.start()
    migrated(url)

    async def work() -> None:
        async with journal_on(url, tmp_path / "home", max_wait_seconds=60.0) as journal:
            lease = await journal.begin(RUN, opened(RUN))
            assert lease is not None
            await asyncio.to_thread(server.stop, "immediate")
            for number in range(20):
                journal.append_soon(lease, f"note:{number}", Noted(content=str(number)))
            waiting = asyncio.ensure_future(journal.wait_durable(lease))
            await asyncio.to_thread(server.start)
            await waiting
            assert [one.seq for one in await journal.records(RUN)] == list(range(1, 22))
        async with journal_on(url, tmp_path / "home", max_wait_seconds=0.2) as journal:
            lease = await journal.acquire(RUN)
            await asyncio.to_thread(server.stop, "immediate")
            with pytest.raises(StorageAway, match="away for"):
                await journal.append(lease, "note:20", Noted(content="20"))
            await asyncio.to_thread(server.start)
            # The run is live, and this process continues it.
            lease = await journal.acquire(RUN)
            assert (await journal.append(lease, "note:20", Noted(content="20"))).seq == 22

    try:
        asyncio.run(work())
    finally:
        server.stop("immediate")
        shutil.rmtree(place)


@pytest.mark.rule("store.away")
def test_the_first_batch_of_a_process_waits_for_an_earlier_try_that_is_still_under_way() -> None:
    address = StoreAddress(emptied_database())
    with closing(PostgresSession(address)) as first, closing(PostgresSession(address)) as second:
        lock = "SELECT lock_batch('me', 1, '{}')"
        first.run("BEGIN")
        assert first.fetch(lock) == [(False,)]
        first.fetch("SELECT beat('me', 1, 'host', '1', 0)")
        answers: list[Any] = []
        again = threading.Thread(target=lambda: answers.extend(second.fetch(lock)))
        again.start()
        with closing(PostgresSession(address)) as other:
            while not answers and not other.fetch("SELECT 1 FROM pg_locks WHERE NOT granted"):
                time.sleep(0.005)
        first.run("COMMIT")
        again.join()
    assert answers == [(True,)]


@pytest.mark.rule("store.beat")
def test_a_machine_that_was_suspended_knows_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.clock_gettime
    shift = 0.0
    monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + shift)

    async def work(url: str) -> tuple[float, float, float]:
        nonlocal shift
        async with journal_on(url, tmp_path) as journal:
            before, monotonic = journal.clock.now(), journal.rate_limit_shift()
            # The monotonic clock has not counted the hour.
            shift = 3600.0
            return (
                journal.clock.now() - before,
                journal.clock.moment().at - before,
                journal.rate_limit_shift() - monotonic,
            )

    assert [round(seconds / 60) for seconds in asyncio.run(work(emptied_database()))] == [60, 60, 60]


@pytest.mark.rule("store.beat")
def test_a_new_connection_sets_the_clock_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_writer, "PostgresSession", LossySession)
    real = time.clock_gettime
    shift = 0.0
    monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + shift)

    async def work(url: str) -> float:
        nonlocal shift
        async with journal_on(url, tmp_path) as journal:
            lease = await journal.begin(RUN, opened(RUN))
            assert lease is not None
            shift = -3600.0
            LossySession.losses[:] = ["commit"]
            await journal.append(lease, "note:1", Noted(content="one"))
            return journal.clock.now() - administer(url, "SELECT extract(epoch FROM clock_timestamp())::float8")[0][0]

    assert round(asyncio.run(work(emptied_database())) / 60) == 0
