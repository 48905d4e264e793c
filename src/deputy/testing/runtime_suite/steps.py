"""Cases of steps: executed once, lost or repeated, durable, and the same on replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.errors import StepFailed, UsageError
from deputy.core.events import Noted, Requested, Returned, StepLost
from deputy.testing.runtime_suite.case_helpers import (
    RUN,
    CallCounter,
    Death,
    completed,
    crash_in_the_gate_and_go_on,
    opened,
    requested,
    result_of,
    serving,
)

if TYPE_CHECKING:
    from deputy.core.outcome import Outcome
    from deputy.engine.ports import RunContext, RunStart
    from deputy.testing.runtime_suite.case_helpers import Case, Host


async def a_finished_step_is_never_taken_again(host: Host) -> None:
    """The result of a step returns after a crash, without executing it."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        first = await run.step("first", calls.note, "one")
        await run.step("second", calls.gated, "two")
        assert isinstance(first, Noted)
        return completed(run, f"{first.content}")

    assert await crash_in_the_gate_and_go_on(host, flow, calls) == "one"
    assert calls.made == ["one", "two", "two"]


async def a_step_that_must_not_repeat_is_lost(host: Host) -> None:
    """A step that must not repeat, and was running in the crash, is reported as lost."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        event = await run.step("pay", calls.gated, "pay", repeatable=False)
        return completed(run, "unknown" if isinstance(event, StepLost) else "known")

    assert await crash_in_the_gate_and_go_on(host, flow, calls) == "unknown"
    assert calls.made == ["pay"]


async def a_failed_step_fails_alike_when_replayed(host: Host) -> None:
    """An error of the body fails the step, now and on every replay."""
    calls = CallCounter()

    async def fail(args: str) -> Noted:
        calls.made.append(args)
        raise UsageError("args", args, "something else")

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        try:
            await run.step("bad", fail, "bad")
        except StepFailed as failure:
            await run.step("gate", calls.gated, "gate")
            return completed(run, failure.error.message)
        return completed(run, "no failure")

    assert "something else" in await crash_in_the_gate_and_go_on(host, flow, calls)
    assert calls.made == ["bad", "gate", "gate"]


async def a_key_serves_one_operation(host: Host) -> None:
    """Two operations under one key are refused."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        await run.step("same", calls.note, "one")
        try:
            await run.step("same", calls.note, "two")
        except UsageError:
            return completed(run, "refused")
        return completed(run, "allowed")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        assert await result_of(engine) == "refused"


async def time_and_ids_are_the_same_when_replayed(host: Host) -> None:
    """Time and ids come from the records."""
    calls = CallCounter()
    seen: list[tuple[float, str]] = []

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        name = await run.new_id("child")
        await run.record("note", Noted(content="x"))
        seen.append((run.now(), name))
        await run.step("gate", calls.gated, "gate")
        return completed(run, "done")

    await crash_in_the_gate_and_go_on(host, flow, calls)
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert seen[0][0] > 0


async def a_sleep_counts_from_its_first_beginning(host: Host) -> None:
    """A sleep that is over is not repeated."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        await run.sleep("nap", 0.01)
        before = run.now()
        await run.step("gate", calls.gated, "gate")
        await run.sleep("long", -1.0)
        return completed(run, "awake" if run.now() >= before else "before its time")

    assert await crash_in_the_gate_and_go_on(host, flow, calls) == "awake"


# --- what is durable, and when ----------------------------------------------------------------------------------------


async def all_before_a_step_is_durable_when_it_begins(host: Host) -> None:
    """After a crash at the start of a step, everything before it and its start are recorded."""
    death = Death(host)
    seen: list[str] = []

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        await run.step("paid", death.note, "paid")
        await run.record("said", Noted(content="said"))
        seen.append(await run.new_id("child"))
        await run.step("die", death.come, "die")
        return completed(run, seen[-1])

    await death.meet(flow)
    async with host.start(flow) as engine:
        state = await engine.get(RUN)
        assert state is not None
        assert state.counts.notes == 2
        assert [key for key in state.under_way if key.endswith("die")]
        async with serving(engine):
            assert await result_of(engine) == seen[0] == seen[1]
    assert death.made == ["paid", "die", "die"]


async def what_is_waited_for_is_durable(host: Host) -> None:
    """After `durable`, a crash loses nothing."""
    death = Death(host)

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        await run.step("paid", death.note, "paid")
        await run.step("read", death.note, "read", reads=True)
        await run.durable()
        await death.come("die")
        return completed(run, "done")

    await death.meet(flow)
    async with host.start(flow) as engine, serving(engine):
        assert await result_of(engine) == "done"
    assert death.made == ["paid", "read", "die", "die"]


async def a_child_is_born_when_all_before_it_is_durable(host: Host) -> None:
    """Everything before a spawn is durable when the child starts."""
    death = Death(host)

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        if isinstance(start, Requested):
            await death.come("child")
            return completed(run, "from the child")
        await run.step("paid", death.note, "paid")
        child = await run.spawn("call", requested(run, "sess_1_child0", "c"))
        return completed(run, (await run.join("join", child)).summary)

    await death.meet(flow)
    async with host.start(flow) as engine, serving(engine):
        assert await result_of(engine) == "from the child"
    assert death.made == ["paid", "child", "child"]


async def a_crash_while_only_reading_leaves_no_hole(host: Host) -> None:
    """Steps that only read need not be durable at once, but the records have no gap."""
    death = Death(host)
    steps = ("paid", "first", "second")

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        for name in steps:
            await run.step(name, death.note, name, reads=name != "paid")
        await run.step("die", death.come, "die", reads=True)
        return completed(run, "done")

    await death.meet(flow)
    async with host.start(flow) as engine, serving(engine):
        assert await result_of(engine) == "done"
    again = death.made[len(steps) + 1 : -1]
    assert again == [*steps][len(steps) - len(again) :]


async def a_result_is_handed_out_when_all_before_it_is_durable(host: Host) -> None:
    """When the result is returned, all records are durable."""

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        for number in range(5):
            await run.record(f"note {number}", Noted(content=str(number)))
        return completed(run, "done")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        assert await result_of(engine) == "done"
        await host.crash(engine)
    async with host.start(flow) as engine:
        records = [record async for record in engine.events(RUN)]
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert sum(isinstance(record.event, Noted) for record in records) == 5
        assert isinstance(records[-1].event, Returned)


CASES: tuple[Case, ...] = (
    a_finished_step_is_never_taken_again,
    a_step_that_must_not_repeat_is_lost,
    a_failed_step_fails_alike_when_replayed,
    a_key_serves_one_operation,
    time_and_ids_are_the_same_when_replayed,
    a_sleep_counts_from_its_first_beginning,
    all_before_a_step_is_durable_when_it_begins,
    what_is_waited_for_is_durable,
    a_child_is_born_when_all_before_it_is_durable,
    a_crash_while_only_reading_leaves_no_hole,
    a_result_is_handed_out_when_all_before_it_is_durable,
)
