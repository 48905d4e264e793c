"""Faults of workers and of their store, in one process with the real tables."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.cluster import ClusterHost
from tests.support.postgres import fresh_database

from deputy.core.errors import StorageBusy, StorageTooNew, WorkspaceError
from deputy.core.events import Noted, QuestionAsked, Requested, Returned, RunOpened
from deputy.core.outcome import Completed, Failed
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.journal.postgres import postgres_queries, postgres_writer
from deputy.journal.postgres.postgres_journal import PostgresJournal
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress
from deputy.testing.runtime_suite.case_helpers import RUN, CallCounter, completed, opened

if TYPE_CHECKING:
    from pathlib import Path

    from deputy.core.outcome import Outcome
    from deputy.engine.ports import RunContext

TIME, STEADY = time.time, postgres_writer.steady


async def unused(run: RunContext, start: Any) -> Outcome:
    raise AssertionError("a process that only submits carried out a run")


@pytest.mark.rule("cluster.bug")
def test_a_run_that_meets_a_bug_ends_as_failed_and_is_not_placed_again(tmp_path: Path) -> None:
    async def broken(run: RunContext, start: Any) -> Outcome:
        raise ZeroDivisionError("by a bug")

    async def go(in_records: bool) -> tuple[Outcome, int]:
        host = ClusterHost(tmp_path)
        async with host.start(unused, claims=False) as submitter, host.start(broken) as worker:
            if in_records:
                journal: Any = host.journal(worker)
                journal.records = unreadable
            await submitter.submit(RUN, opened())
            outcome = await submitter.result(RUN)
            assert await host.sweep(worker) == (0, 0)
            return outcome, len(host.claims)

    async def unreadable(run: str, after: int = 0) -> Any:
        raise ZeroDivisionError("by a bug")

    for in_records in (False, True):
        outcome, claims = asyncio.run(go(in_records))
        assert isinstance(outcome, Failed)
        assert (outcome.errors[0].code, claims) == ("INTERNAL_ERROR", 1)
        assert "ZeroDivisionError: by a bug" in outcome.errors[0].message


@pytest.mark.rule("cluster.bug")
def test_an_error_of_deputy_while_a_run_is_read_is_no_end_of_it(tmp_path: Path) -> None:
    async def flow(run: RunContext, start: Any) -> Outcome:
        return completed(run, "done")

    async def go() -> None:
        host = ClusterHost(tmp_path)
        async with host.start(unused, claims=False) as submitter, host.start(flow, claims=False) as worker:
            journal: Any = host.journal(worker)
            read, journal.records = journal.records, away
            await submitter.submit(RUN, opened())
            with pytest.raises(WorkspaceError, match="The folder is away"):
                await worker.carry_out(RUN, 1)
            journal.records = read
            await worker.carry_out(RUN, 2)
            assert (await submitter.result(RUN)).summary == "done"
            # A run without its first record can never go on.
            await submitter.submit("sess_2_lost", RunOpened(lineage=Lineage.root("sess_2_lost")))
            host.execute("DELETE FROM events WHERE run = 'sess_2_lost'")
            await worker.carry_out("sess_2_lost", 1)
            assert isinstance(await submitter.result("sess_2_lost"), Failed)

    async def away(run: str, after: int = 0) -> Any:
        raise WorkspaceError("The folder is away", "Try again.")

    asyncio.run(go())


class AwaySession(PostgresSession):
    """A connection to a database that can be away."""

    is_away = False

    def __init__(self, *arguments: Any) -> None:
        self._refuse()
        super().__init__(*arguments)

    def fetch(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        self._refuse()
        return super().fetch(query, *values)

    def run(self, script: str, seconds: float | None = None) -> None:
        self._refuse()
        super().run(script, seconds)

    def _refuse(self) -> None:
        if AwaySession.is_away:
            raise ConnectionRefusedError("the database is away")


@pytest.mark.rule("store.away")
def test_a_run_whose_store_was_away_for_too_long_stays_live_and_its_worker_continues_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_writer, "PostgresSession", AwaySession)
    monkeypatch.setattr(postgres_queries, "PostgresSession", AwaySession)
    calls = CallCounter()

    async def flow(run: RunContext, start: Any) -> Outcome:
        await run.step("work", calls.gated, "x")
        return completed(run, "done")

    async def go() -> None:
        host = ClusterHost(tmp_path, max_wait_seconds=0.2)
        async with host.start(flow, claims=False) as worker:
            await worker.submit(RUN, opened())
            async with asyncio.TaskGroup() as group:
                group.create_task(worker.carry_out(RUN, 1))
                await calls.reached.wait()
                monkeypatch.setattr(AwaySession, "is_away", True)
                calls.gate.set()
                with pytest.raises(StorageBusy, match="away"):
                    await worker.result(RUN)
            # The run has been stopped meanwhile.
            monkeypatch.setattr(AwaySession, "is_away", False)
            with host.read() as queries:
                state = queries.state(RUN)
            assert state is not None
            assert state.is_live
            assert await worker.resume_troubled() == [RUN]
            assert (await asyncio.to_thread(host.lease, RUN))["is_placed"]
            await worker.carry_out(RUN, 2)
            assert (await worker.result(RUN)).summary == "done"
        # The call whose result could not be recorded.
        assert calls.made == ["x", "x"]

    asyncio.run(go())


@pytest.mark.rule("cluster.look")
def test_a_worker_without_trouble_reads_no_runs_to_find_some(tmp_path: Path) -> None:
    async def go() -> None:
        host = ClusterHost(tmp_path)
        async with host.start(unused, claims=False) as worker:
            journal: Any = host.journal(worker)
            journal.unfinished = unreadable
            assert await worker.resume_troubled() == ()

    async def unreadable(active: Any = ()) -> Any:
        raise AssertionError("it read all runs")

    asyncio.run(go())


@pytest.mark.rule("cluster.look")
def test_a_process_that_looks_for_late_runs_reads_only_states_that_changed(tmp_path: Path) -> None:
    async def go() -> None:
        host = ClusterHost(tmp_path)
        async with host.start(unused, claims=False) as submitter:
            runs = [f"sess_{number}_waits0" for number in range(5)]
            for run in runs:
                await submitter.submit(run, RunOpened(lineage=Lineage.root(run)))
            with host.read() as queries:
                asked: list[str] = []
                rows = queries._rows  # pyright: ignore[reportPrivateUsage]

                def noted(query: str, *values: Any) -> list[Any]:
                    asked.extend(values[0] if values and isinstance(values[0], list) else ())
                    return rows(query, *values)

                queries._rows = noted  # type: ignore[method-assign]
                first = queries.due((), "", (), 0.0)
                again = queries.due((), "", (), 0.0)
                assert [state.run for state in first] == [state.run for state in again] == runs
                assert sorted(asked) == runs
                await submitter.cancel(runs[2])
                await submitter.result(runs[2])
                asked.clear()
                states = {state.run: state.status for state in queries.due((), "", (), 0.0)}
                assert (states[runs[2]], asked) == ("cancelled", [runs[2]])

    asyncio.run(go())


@pytest.mark.rule("cluster.look")
def test_a_run_that_waits_for_a_person_is_looked_at_only_when_its_time_is_over(tmp_path: Path) -> None:
    async def go() -> None:
        host = ClusterHost(tmp_path)
        async with host.write() as journal:
            for run, until in (("sess_1_ever00", None), ("sess_2_until0", 50.0)):
                lease = await journal.begin(run, RunOpened(lineage=Lineage.root(run)))
                assert lease is not None
                await journal.append(lease, "question:1.asked", QuestionAsked(topic="answer", until=until))
            with host.read() as queries:

                def found(now: float, *parked: str) -> list[str]:
                    return [state.run for state in queries.due((), "", parked, now)]

                assert [found(now) for now in (49.0, 50.0, 49.0)] == [[], ["sess_2_until0"], ["sess_2_until0"]]
                # Of ten thousand runs that wait, a worker keeps no state.
                seen: Any = queries._seen  # pyright: ignore[reportPrivateUsage]
                assert seen["sess_1_ever00"][1] == inf
                assert len(queries.unsettled_besides((), "")) == 2
                done = Completed(lineage=Lineage.root("sess_2_until0"), summary="done")
                await journal.finish(lease, "returned", Returned(outcome=done))
                # One that this process parked has ended elsewhere, and its caller has the result.
                host.execute("UPDATE runs SET is_settled = true WHERE run = 'sess_2_until0'")
                assert (found(50.0), found(50.0, "sess_1_ever00", "sess_2_until0")) == ([], ["sess_2_until0"])

    asyncio.run(go())


@pytest.mark.rule("cluster.look")
def test_a_late_run_whose_subagent_waits_for_a_person_is_not_ended(tmp_path: Path) -> None:
    async def go() -> None:
        host = ClusterHost(tmp_path)
        async with host.write() as journal, host.start(unused, claims=False) as engine:
            late = journal.clock.now() - 100.0
            for run in ("sess_1_alone0", "sess_2_asks00"):
                lease = await journal.begin(run, RunOpened(lineage=Lineage.root(run, deadline=late)))
                assert lease is not None
            task = Request(
                session_id="sess_3_child0", target=Hop("task:a", "task"), prompt="a", caller=Lineage.root(run),
                caller_grant=Grant(),
            )  # fmt: skip
            child = await journal.spawn(lease, "spawn:1", task.session_id, Requested(request=task, parent=run))
            assert child is not None
            await journal.append(child, "question:1.asked", QuestionAsked(topic="answer"))
            await engine.expire_others()
            with host.read() as queries:
                assert {one.run for one in queries.live()} == {run, task.session_id}

    asyncio.run(go())


@pytest.mark.rule("store.beat")
def test_workers_whose_clocks_differ_by_a_minute_agree_on_deadlines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def machine(seconds: float) -> None:
        """What is started from now on is on a machine whose clocks are off."""
        monkeypatch.setattr(time, "time", lambda: TIME() + seconds)
        monkeypatch.setattr(postgres_writer, "steady", lambda: STEADY() + seconds)

    async def go(skew: float) -> list[float]:
        host, calls = ClusterHost(tmp_path), CallCounter()

        async def flow(run: RunContext, start: Any) -> Outcome:
            await run.step("work", calls.gated, "x")
            return completed(run, "in time")

        machine(skew)
        async with host.start(unused, claims=False) as submitter:
            deadline = host.journal(submitter).clock.now() + 25
            machine(-skew)
            async with host.start(flow) as worker:
                await submitter.submit(RUN, RunOpened(lineage=Lineage.root(RUN, deadline=deadline)))
                await calls.reached.wait()
                assert [*await submitter.expire_others(), *await worker.expire_others()] == []
                assert await host.sweep(worker) == (0, 0)
                calls.gate.set()
                assert (await submitter.result(RUN)).summary == "in time"
            return [record.at for record in await host.journal(submitter).records(RUN)]

    for skew in (30.0, -30.0):
        times = asyncio.run(go(skew))
        assert max(times) - min(times) < 25
        assert times == sorted(times)


@pytest.mark.rule("cluster.compare")
def test_a_worker_tells_how_far_its_clock_is_off_also_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> list[float]:
        host, found = ClusterHost(tmp_path), list[float]()
        async with host.write() as journal:
            for skew in (0.0, 30.0, -7200.0):
                monkeypatch.setattr(time, "time", lambda skew=skew: TIME() + skew)
                # Every heartbeat tells it, whichever way its batch is committed.
                await journal.enter_worker((), None, default=8)
                await journal.begin(f"sess_1_{len(found)}", RunOpened(lineage=Lineage.root(f"sess_1_{len(found)}")))
                with host.read() as queries:
                    found.append(queries.workers()[0].clock_offset_seconds)
        return found

    assert [round(seconds / 10) for seconds in asyncio.run(go())] == [0, 3, -720]


@pytest.mark.rule("store.schema")
def test_a_process_meets_newer_tables_when_it_connects_again(tmp_path: Path) -> None:
    address = StoreAddress(fresh_database())
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()"

    async def go(oldest: int) -> None:
        journal = await asyncio.to_thread(PostgresJournal, address, tmp_path)
        async with journal:
            run = f"sess_{oldest}_root00"
            lease = await journal.begin(run, RunOpened(lineage=Lineage.root(run)))
            assert lease is not None
            with closing(PostgresSession(address)) as session:
                session.run(f"UPDATE schema_version SET version = 9, oldest = {oldest}")
                session.fetch(others, address.database)
            await journal.append(lease, "note:1", Noted(content="after the migration"))

    # A version that older programs can use, as during a rolling upgrade; then one that they cannot.
    asyncio.run(go(1))
    with pytest.raises(StorageTooNew, match="Upgrade Deputy on this machine"):
        asyncio.run(go(9))
