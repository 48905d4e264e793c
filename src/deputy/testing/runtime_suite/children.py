"""Cases of children: spawned once, resumed, joined and stopped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deputy.core.events import Requested, Resumed
from deputy.core.outcome import Cancelled, Failed
from deputy.testing.runtime_suite.case_helpers import (
    RUN,
    CallCounter,
    blocked,
    completed,
    crash_in_the_gate_and_go_on,
    opened,
    requested,
    result_of,
)

if TYPE_CHECKING:
    from deputy.core.outcome import Outcome
    from deputy.engine.ports import RunContext, RunStart
    from deputy.testing.runtime_suite.case_helpers import Case, Host


async def a_child_is_spawned_once(host: Host) -> None:
    """A key spawns one child, which runs once, whatever is replayed."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        if isinstance(start, Requested):
            await run.step("work", calls.note, "child")
            return completed(run, "from the child")
        child = await run.spawn("call_1", requested(run, "sess_1_child0", "c"))
        outcome = await run.join("call_1:join", child)
        await run.step("gate", calls.gated, "gate")
        return completed(run, outcome.summary)

    assert await crash_in_the_gate_and_go_on(host, flow, calls) == "from the child"
    assert calls.made == ["child", "gate", "gate"]


async def a_child_goes_on_after_a_crash(host: Host) -> None:
    """A child that ran during the crash is resumed, and its parent gets the outcome."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        if isinstance(start, Requested):
            await run.step("work", calls.gated, "child")
            return completed(run, "late")
        child = await run.spawn("call_1", requested(run, "sess_1_child0", "c"))
        return completed(run, (await run.join("call_1:join", child)).summary)

    assert await crash_in_the_gate_and_go_on(host, flow, calls) == "late"
    assert calls.made == ["child", "child"]


async def a_failing_child_stops_no_sibling(host: Host) -> None:
    """A bug in a child is an outcome for its parent; its siblings continue."""

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        if isinstance(start, Requested):
            if start.label == "bad":
                raise ZeroDivisionError("a mistake")
            if start.label == "cancelled within":
                raise asyncio.CancelledError
            return completed(run, start.label)
        children = [
            await run.spawn(f"call_{n}", requested(run, f"sess_1_child{n}", label))
            for n, label in enumerate(("a", "bad", "cancelled within", "b"))
        ]
        outcomes = [await run.join(f"join_{n}", child) for n, child in enumerate(children)]
        return completed(run, ",".join(type(outcome).__name__ for outcome in outcomes))

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        assert await result_of(engine) == "Completed,Failed,Failed,Completed"
        failed = await engine.result("sess_1_child1")
        assert isinstance(failed, Failed)
        assert "a mistake" in failed.errors[0].message


async def a_join_delivers_the_childs_result(host: Host) -> None:
    """A child's result is kept until its parent has joined it."""

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        if isinstance(start, Requested):
            return completed(run, "child")
        child = await run.spawn("call", requested(run, "sess_1_child0", "c"))
        await run.join("join", child)
        return completed(run, "done")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await result_of(engine)
        child, root = await engine.get("sess_1_child0"), await engine.get(RUN)
        assert child is not None
        assert child.is_delivered
        assert root is not None
        assert not root.is_delivered
        await engine.deliver(RUN, "the caller")
        root = await engine.get(RUN)
        assert root is not None
        assert root.is_delivered


async def a_child_that_is_stopped_ends_and_is_joined(host: Host) -> None:
    """A run can stop its own child, with all below it, and join it."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        if isinstance(start, Requested):
            await run.step("gate", calls.gated, "child")
            return completed(run, "too late")
        slow = await run.spawn("slow", requested(run, "sess_1_slow00", "slow"))
        await calls.reached.wait()
        await run.stop(slow, "enough")
        await run.stop(slow, "enough")
        return completed(run, (await run.join("join", slow)).status)

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        assert await result_of(engine) == "cancelled"


async def a_child_works_anew_in_its_own_rounds(host: Host) -> None:
    """A completed child can be restarted, once per key, and each end is joined."""

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        if isinstance(start, Requested):
            return completed(run, f"round {run.state.round}")
        child = await run.spawn("call", requested(run, "sess_1_child0", "c"))
        ends = [(await run.join("join 0", child)).summary]
        for number in (1, 2):
            await run.restart_child(f"again {number}", child, "better", force=True)
            ends.append((await run.join(f"join {number}", child)).summary)
        await run.restart_child("again 3", child)
        return completed(run, ", ".join([*ends, (await run.join("join 3", child)).summary]))

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        assert await result_of(engine) == "round 0, round 1, round 2, round 2"


async def a_chain_that_waits_for_its_last_goes_on_after_a_crash(host: Host) -> None:
    """Runs that each wait for a child continue after a crash, suspended or not."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        await run.step("before", calls.note, start.label)
        if isinstance(start, Requested) and start.label == "4":
            await run.step("gate", calls.gated, "last")
            return completed(run, "end")
        number = int(start.label) + 1 if isinstance(start, Requested) else 1
        child = await run.spawn("call", requested(run, f"sess_1_deep0{number}", str(number)))
        return completed(run, f"{number} {(await run.join('join', child)).summary}")

    assert await crash_in_the_gate_and_go_on(host, flow, calls) == "1 2 3 4 end"
    assert [made for made in calls.made if made != "last"] == ["root", "1", "2", "3", "4"]


async def a_tree_that_is_blocked_is_dismissed_once(host: Host) -> None:
    """Each run of the tree gets one round, in which it ends as cancelled."""
    family = {RUN: "sess_1_child0", "sess_1_child0": "sess_1_child1"}

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        if run.run in family:
            await run.join("join", await run.spawn("call", requested(run, family[run.run], "c")))
        return blocked(run, "Which?")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await engine.result(RUN)
        await engine.cancel(RUN)
        for run in (RUN, *family.values()):
            assert isinstance(await engine.result(run), Cancelled)
            records = [record async for record in engine.events(run)]
            assert sum(isinstance(record.event, Resumed) for record in records) == 1


CASES: tuple[Case, ...] = (
    a_child_is_spawned_once,
    a_child_goes_on_after_a_crash,
    a_failing_child_stops_no_sibling,
    a_join_delivers_the_childs_result,
    a_child_that_is_stopped_ends_and_is_joined,
    a_child_works_anew_in_its_own_rounds,
    a_tree_that_is_blocked_is_dismissed_once,
    a_chain_that_waits_for_its_last_goes_on_after_a_crash,
)
