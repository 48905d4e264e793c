"""Runs that workers carry out: which one gets a run, and what happens to it when a worker is lost."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
from importlib.metadata import version
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec import structs
from tests.support.cluster import ClusterHost

from deputy.core.errors import LeaseLost
from deputy.core.events import Noted, Requested, Returned, RunOpened
from deputy.core.outcome import Cancelled
from deputy.core.request import Lineage
from deputy.testing import runtime_suite
from deputy.testing.runtime_suite.case_helpers import RUN, CallCounter, completed, opened, requested, result_of
from deputy.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from deputy.core.outcome import Outcome
    from deputy.engine.ports import RunContext
    from deputy.journal.postgres.postgres_queries import WorkerRow

IS_WHOLE = os.environ.get("DEPUTY_SUITE") == "all"
"""`make test-cluster` runs every case, and the others a sample."""
SAMPLED = [case for case in runtime_suite.CASES if IS_WHOLE or random.Random(f"placed {case.__name__}").random() < 0.2]
MODES = [0.0, 5.0] if IS_WHOLE else [0.0]
CHILD = "sess_1_child0"


@pytest.mark.rule("cluster.place")
@pytest.mark.parametrize("suspend_seconds", MODES)
@pytest.mark.parametrize("case", SAMPLED, ids=lambda case: case.__name__)
def test_a_worker_is_durable(case: Any, suspend_seconds: float, tmp_path: Path) -> None:
    asyncio.run(case(ClusterHost(tmp_path, suspend_seconds)))


def family(calls: CallCounter) -> Callable[[RunContext, Any], Awaitable[Outcome]]:
    """A root that waits for a child; the child has one step behind a gate."""

    async def flow(run: RunContext, start: Any) -> Outcome:
        if isinstance(start, Requested):
            await run.step("work", calls.gated, run.run)
            return completed(run, "from the child")
        await run.step("before", calls.note, "root")
        child = await run.spawn("call", requested(run, CHILD, "c"))
        return completed(run, (await run.join("join", child)).summary)

    return flow


async def unused(run: RunContext, start: Any) -> Outcome:
    raise AssertionError("a process that only submits carried out a run")


def root_of(run: str, label: str = "") -> RunOpened:
    return RunOpened(lineage=Lineage.root(run), label=label)


@pytest.mark.rule("cluster.place")
def test_a_run_of_another_process_is_carried_out_once_by_two_workers(tmp_path: Path) -> None:
    host, calls = ClusterHost(tmp_path), CallCounter()
    calls.gate.set()

    async def go() -> str:
        flow = family(calls)
        async with host.start(unused, claims=False) as submitter, host.start(flow), host.start(flow):
            await submitter.submit(RUN, opened())
            return await result_of(submitter)

    assert asyncio.run(go()) == "from the child"
    assert calls.made == ["root", CHILD]


def test_a_worker_is_listed_with_its_machine_and_version(tmp_path: Path) -> None:
    host = ClusterHost(tmp_path)

    async def go() -> list[WorkerRow]:
        async with host.write() as journal:
            await journal.enter_worker(("gpu",), None, default=8)
            with host.read() as queries:
                return queries.workers()

    (worker,) = asyncio.run(go())
    assert (worker.host, worker.version, worker.slots) == (socket.gethostname(), version("deputy-agents"), 8)


@pytest.mark.rule("cluster.place")
def test_a_placement_that_two_workers_get_is_carried_out_by_one(tmp_path: Path) -> None:
    host, calls = ClusterHost(tmp_path), CallCounter()

    async def flow(run: RunContext, start: Any) -> Outcome:
        await run.step("work", calls.gated, run.run)
        return completed(run, "done")

    async def go() -> None:
        async with host.start(flow, claims=False) as one, host.start(flow, claims=False) as two:
            await one.submit(RUN, opened())
            async with asyncio.TaskGroup() as group:
                for engine in (one, two, one, two):
                    group.create_task(engine.carry_out(RUN, 1))
                await calls.reached.wait()
                calls.gate.set()
            # An old placement is void, also after the end.
            await two.carry_out(RUN, 1)
            assert await result_of(two) == "done"

    asyncio.run(go())
    assert calls.made == [RUN]


@pytest.mark.rule("cluster.place")
@pytest.mark.parametrize("suspend_seconds", [0.0, 60.0])
def test_a_parent_and_its_child_are_on_different_workers(tmp_path: Path, suspend_seconds: float) -> None:
    host, calls = ClusterHost(tmp_path, suspend_seconds), CallCounter()

    async def go() -> str:
        flow = family(calls)
        async with host.start(flow, only=RUN) as above, host.start(flow, only=CHILD):
            await above.submit(RUN, opened())
            await calls.reached.wait()
            calls.gate.set()
            return await result_of(above)

    assert asyncio.run(go()) == "from the child"
    assert calls.made == ["root", CHILD]
    assert len({owner for owner, _ in host.claims}) == 2


@pytest.mark.rule("cluster.pin")
def test_a_run_that_is_pinned_stays_in_its_process_with_its_children(tmp_path: Path) -> None:
    host, calls = ClusterHost(tmp_path), CallCounter()
    calls.gate.set()

    async def go() -> str:
        async with host.start(family(calls), claims=False) as submitter, host.start(unused):
            await submitter.submit(RUN, root_of(RUN, "pinned"))
            return await result_of(submitter)

    assert asyncio.run(go()) == "from the child"
    assert host.claims == []


@pytest.mark.rule("cluster.lost")
def test_a_worker_that_was_stopped_for_too_long_writes_nothing_more(tmp_path: Path) -> None:
    host = ClusterHost(tmp_path)
    frozen, other = CallCounter(), CallCounter()
    other.gate.set()

    async def go() -> list[str]:
        flow = family(frozen)
        async with host.start(flow, claims=False) as stopped, host.start(family(other), claims=False) as living:
            # A stopped process claims nothing: it must not get the run that the sweep places again.
            async with host.claiming(stopped):
                await stopped.submit(RUN, opened())
                await frozen.reached.wait()
            while not (await asyncio.to_thread(host.lease, RUN))["is_parked"]:
                pass
            # Taken now: it may notice soon after that it has lost its run.
            lease = held(stopped, CHILD)
            # A batch may still be under way, and be a heartbeat.
            await asyncio.to_thread(host.silence, host.journal(stopped).owner)
            while await host.sweep(living) != (1, 0):
                await asyncio.to_thread(host.silence, host.journal(stopped).owner)
            async with host.claiming(living):
                assert await result_of(living) == "from the child"
            # Thawed: what it writes is refused.
            with pytest.raises(LeaseLost):
                await host.journal(stopped).append(lease, "late", Noted(content="late"))
            frozen.gate.set()
            return [record.key for record in await host.journal(living).records(CHILD)]

    keys = asyncio.run(go())
    assert "late" not in keys
    assert "adopted:2" in keys
    # One call of a model in flight was repeated: that of the run that was taken over.
    assert (frozen.made, other.made) == (["root", CHILD], [CHILD])


def held(engine: Any, run: str) -> Any:
    return engine._supervisor.work[run].lease


@pytest.mark.rule("cluster.lost")
def test_a_stuck_writer_loses_its_runs(tmp_path: Path) -> None:
    """Its heartbeat goes only with a batch, so that a process whose writer hangs is taken for dead."""
    host, calls, stuck = ClusterHost(tmp_path), CallCounter(), threading.Event()

    async def go() -> None:
        async with host.start(family(calls), claims=False) as one, host.start(family(calls), claims=False) as two:
            await one.submit(RUN, opened())
            await one.carry_out(RUN, 1)
            carrying = asyncio.create_task(one.carry_out(CHILD, 1))
            await calls.reached.wait()
            waiting = host.journal(one).transact_soon(lambda _: stuck.wait())
            # Its loop and its steps go on; only the clock of the database decides.
            await asyncio.to_thread(host.silence, host.journal(one).owner)
            assert await host.sweep(two) == (1, 0)
            stuck.set()
            await waiting
            with pytest.raises(LeaseLost):
                await host.journal(one).append(held(one, CHILD), "late", Noted(content="late"))
            carrying.cancel()

    asyncio.run(go())


@pytest.mark.rule("cluster.lost")
def test_a_run_that_its_parent_or_a_person_continues_is_recorded_as_taken_over(tmp_path: Path) -> None:
    host, lost, other = ClusterHost(tmp_path), CallCounter(), CallCounter()
    other.gate.set()

    async def go() -> list[str]:
        async with host.start(family(lost), claims=False) as silent, host.start(family(other), claims=False) as living:
            async with host.claiming(silent):
                await silent.submit(RUN, opened())
                await lost.reached.wait()
            await asyncio.to_thread(host.silence, host.journal(silent).owner)
            # Before any sweep.
            assert await host.journal(living).place(CHILD)
            async with host.claiming(living):
                assert await result_of(living) == "from the child"
            lost.gate.set()
            return [record.key for record in await host.journal(living).records(CHILD)]

    assert "adopted:2" in asyncio.run(go())


@pytest.mark.rule("cluster.lost")
def test_after_an_outage_nothing_is_taken_from_processes_that_look_silent(tmp_path: Path) -> None:
    host, calls = ClusterHost(tmp_path), CallCounter()

    async def go() -> None:
        async with host.start(family(calls), claims=False) as one, host.start(family(calls), claims=False) as two:
            await one.submit(RUN, opened())
            await one.carry_out(RUN, 1)
            carrying = asyncio.create_task(one.carry_out(CHILD, 1))
            await calls.reached.wait()
            await asyncio.to_thread(host.silence, host.journal(one).owner)
            # The connection of the sweeping process is young, as after an outage.
            assert await host.journal(two).sweep() == (0, 0)
            assert await host.sweep(two) == (1, 0)
            carrying.cancel()

    asyncio.run(go())


@pytest.mark.rule("cluster.lost")
def test_a_run_that_was_claimed_and_never_begun_is_placed_again(tmp_path: Path) -> None:
    host, calls = ClusterHost(tmp_path), CallCounter()
    calls.gate.set()

    async def go() -> str:
        async with host.start(family(calls), claims=False) as engine:
            await engine.submit(RUN, opened())
            # The worker that claimed it died before it took the lease.
            claimed = "UPDATE dbos.workflow_status SET status = 'PENDING', executor_id = 'x'"
            await asyncio.to_thread(host.execute, claimed)
            assert await host.sweep(engine) == (0, 0)
            await asyncio.to_thread(host.execute, "UPDATE leases SET placed_at = placed_at - interval '1 hour'")
            assert await host.sweep(engine) == (0, 1)
            async with host.claiming(engine):
                return await result_of(engine)

    assert asyncio.run(go()) == "from the child"
    assert host.claims[0][1] == f"{RUN}/2"


@pytest.mark.rule("cluster.park")
@pytest.mark.parametrize("order", ["park", "end", "both"])
def test_a_parent_that_parks_while_its_child_ends_is_placed(tmp_path: Path, order: str) -> None:
    host = ClusterHost(tmp_path)

    async def go() -> None:
        async with host.write() as one, host.write() as two:
            for n in range(12 if order == "both" else 1):
                root, child = f"sess_1_root{n:02}", f"sess_1_child{n:02}"
                await one.begin_placed(root, root_of(root), "deputy")
                parent = await one.acquire_placed(root, 1)
                assert parent is not None
                caller = cast("Any", SimpleNamespace(run=root, state=parent.state))
                await one.spawn(parent, "call", child, structs.replace(requested(caller, child, "c"), parent=root))
                below = await two.acquire_placed(child, 1)
                assert below is not None
                ended = Returned(outcome=completed(caller, "done"))
                if order == "park":
                    assert (is_parked := await one.park(parent, [child]))
                    await two.finish(below, "returned:0", ended)
                elif order == "end":
                    await two.finish(below, "returned:0", ended)
                    assert not (is_parked := await one.park(parent, [child]))
                else:
                    ending = two.finish(below, "returned:0", ended)
                    is_parked, _ = await asyncio.gather(one.park(parent, [child]), ending)
                lease = await asyncio.to_thread(host.lease, root)
                assert (lease["is_placed"], lease["is_parked"]) == (is_parked, False)
                assert lease["owner"] == (None if is_parked else one.owner)

    asyncio.run(go())


@pytest.mark.rule("cluster.park")
@pytest.mark.parametrize("order", ["park", "send", "both"])
def test_a_run_that_parks_while_a_message_comes_is_placed(tmp_path: Path, order: str) -> None:
    host = ClusterHost(tmp_path)

    async def go() -> None:
        async with host.write() as one, host.write() as two:
            for n in range(12 if order == "both" else 1):
                root = f"sess_1_root{n:02}"
                await one.begin_placed(root, root_of(root), "deputy")
                lease = await one.acquire_placed(root, 1)
                assert lease is not None
                sending = two.send(root, "cancel", "cancel:0", b'""')
                if order == "send":
                    await sending
                    assert not (is_parked := await one.park(lease, []))
                elif order == "park":
                    assert (is_parked := await one.park(lease, []))
                    await sending
                else:
                    is_parked, _ = await asyncio.gather(one.park(lease, []), sending)
                after = await asyncio.to_thread(host.lease, root)
                assert (after["is_placed"], after["is_parked"]) == (is_parked, False)

    asyncio.run(go())


@pytest.mark.rule("cluster.drain")
def test_a_draining_worker_lets_its_step_end_and_hands_the_run_over(tmp_path: Path) -> None:
    host, calls = ClusterHost(tmp_path), CallCounter()

    async def flow(run: RunContext, start: Any) -> Outcome:
        await run.step("first", calls.gated, "first")
        await run.step("second", calls.note, "second")
        return completed(run, "done")

    async def go() -> str:
        async with host.start(flow, claims=False) as leaving:
            async with host.claiming(leaving):
                await leaving.submit(RUN, opened())
                await calls.reached.wait()
            draining = asyncio.create_task(leaving.drain(60))
            await asyncio.sleep(0)
            calls.gate.set()
            await draining
            lease = await asyncio.to_thread(host.lease, RUN)
            assert (lease["owner"], lease["is_placed"], lease["placed"]) == (None, True, 2)
            # A run that it claimed just before goes back too.
            await leaving.carry_out(RUN, 2)
            lease = await asyncio.to_thread(host.lease, RUN)
            assert (lease["owner"], lease["is_placed"], lease["placed"]) == (None, True, 3)
            async with host.start(flow) as other:
                return await result_of(other)

    assert asyncio.run(go()) == "done"
    assert calls.made == ["first", "second"]


class LeavingDispatch:
    """Claims nothing, and does not wait for runs when it stops."""

    def __init__(self) -> None:
        self.has_stopped = asyncio.Event()

    async def forget(self) -> int:
        return 0

    async def work(self, carry_out: Any, *, stop: asyncio.Event, is_ready: Callable[[], None], **_: Any) -> None:
        is_ready()
        await stop.wait()
        self.has_stopped.set()


@pytest.mark.rule("cluster.drain")
@pytest.mark.rule("cluster.health")
def test_a_worker_waits_for_its_steps_although_its_queue_does_not(tmp_path: Path) -> None:
    host, calls = ClusterHost(tmp_path), CallCounter()

    async def flow(run: RunContext, start: Any) -> Outcome:
        await run.step("first", calls.gated, "first")
        return completed(run, str(await run.step("second", calls.note, "second")))

    async def go() -> None:
        stop, is_ready, dispatch = asyncio.Event(), asyncio.Event(), LeavingDispatch()
        services = SimpleNamespace(tidy=lambda _: asyncio.sleep(0))
        async with host.start(flow, claims=False) as engine, asyncio.TaskGroup() as group:
            worker = Worker(host.journal(engine), engine, cast("Any", services), cast("Any", dispatch), ())
            assert "starting" in str(worker.problem())
            working = group.create_task(worker.work(2, stop, is_ready.set))
            await is_ready.wait()
            assert worker.problem() is None
            journal: Any = host.journal(engine)
            is_beating, journal.is_beating = journal.is_beating, lambda: False
            assert "the store is away" in str(worker.problem())
            journal.is_beating = is_beating
            await engine.submit(RUN, opened())
            group.create_task(engine.carry_out(RUN, 1))
            await calls.reached.wait()
            stop.set()
            await dispatch.has_stopped.wait()
            assert "draining" in str(worker.problem())
            for _ in range(10):
                await asyncio.sleep(0)
            assert not working.done()
            calls.gate.set()
            await working
            lease = await asyncio.to_thread(host.lease, RUN)
            assert (lease["owner"], lease["is_placed"], lease["placed"]) == (None, True, 2)
        assert calls.made == ["first"]

    asyncio.run(go())


@pytest.mark.rule("cluster.drain")
def test_a_worker_that_closes_places_what_it_holds(tmp_path: Path) -> None:
    host, calls = ClusterHost(tmp_path), CallCounter()

    async def go() -> None:
        async with host.start(family(calls), claims=False) as closing:
            await closing.submit(RUN, opened())
            await closing.carry_out(RUN, 1)
            carrying = asyncio.create_task(closing.carry_out(CHILD, 1))
            await calls.reached.wait()
            carrying.cancel()

    asyncio.run(go())
    assert (host.lease(CHILD)["owner"], host.lease(CHILD)["is_placed"]) == (None, True)


@pytest.mark.rule("cluster.cancel")
def test_a_tree_of_other_processes_is_cancelled_and_a_queued_run_needs_no_worker_for_it(tmp_path: Path) -> None:
    host, calls = ClusterHost(tmp_path, suspend_seconds=60.0), CallCounter()

    async def go() -> None:
        async with host.start(unused, claims=False) as submitter:
            await submitter.submit("sess_1_queued", root_of("sess_1_queued"))
            await submitter.cancel("sess_1_queued", "not needed")
            assert isinstance(await submitter.result("sess_1_queued"), Cancelled)
            flow = family(calls)
            async with host.start(flow, only=RUN), host.start(flow, only=CHILD):
                await submitter.submit(RUN, opened())
                await calls.reached.wait()
                await submitter.cancel(RUN, "not needed")
                for run in (RUN, CHILD):
                    assert isinstance(await submitter.result(run), Cancelled)

    asyncio.run(go())
