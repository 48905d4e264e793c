"""What is durable when: before a step, a child or a result is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.events import Noted, Requested, Returned
from deputy.testing.runtime_suite.case_helpers import RUN, Death, completed, opened, requested, result_of, serving

if TYPE_CHECKING:
    from deputy.core.outcome import Outcome
    from deputy.engine.ports import RunContext, RunStart
    from deputy.testing.runtime_suite.case_helpers import Case, Host


async def all_before_a_step_is_durable_when_it_begins(host: Host) -> None:
    """A crash in the first moment of a step finds all that was done before it, and that it has begun."""
    death = Death(host)
    seen: list[str] = []

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        await run.step("paid", death.note, "paid", view=None)
        await run.record("said", Noted(content="said"))
        seen.append(await run.new_id("child"))
        await run.step("die", death.come, "die", view=None)
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
    """After `durable`, a crash takes nothing away."""
    death = Death(host)

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        await run.step("paid", death.note, "paid", view=None)
        await run.step("read", death.note, "read", view=None, reads=True)
        await run.durable()
        await death.come("die", None)
        return completed(run, "done")

    await death.meet(flow)
    async with host.start(flow) as engine, serving(engine):
        assert await result_of(engine) == "done"
    assert death.made == ["paid", "read", "die", "die"]


async def a_child_is_born_when_all_before_it_is_durable(host: Host) -> None:
    """Whatever a child does first, all that its caller did before it stands."""
    death = Death(host)

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        if isinstance(start, Requested):
            await death.come("child", None)
            return completed(run, "from the child")
        await run.step("paid", death.note, "paid", view=None)
        child = await run.spawn("call", requested(run, "sess_1_child0", "c"))
        return completed(run, (await run.join("join", child)).summary)

    await death.meet(flow)
    async with host.start(flow) as engine, serving(engine):
        assert await result_of(engine) == "from the child"
    assert death.made == ["paid", "child", "child"]


async def a_crash_while_only_reading_leaves_no_hole(host: Host) -> None:
    """Reading need not wait; but nothing done later is kept when something done earlier is not."""
    death = Death(host)
    steps = ("paid", "first", "second")

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        for name in steps:
            await run.step(name, death.note, name, view=None, reads=name != "paid")
        await run.step("die", death.come, "die", view=None, reads=True)
        return completed(run, "done")

    await death.meet(flow)
    async with host.start(flow) as engine, serving(engine):
        assert await result_of(engine) == "done"
    again = death.made[len(steps) + 1 : -1]
    assert again == [*steps][len(steps) - len(again) :]


async def a_result_is_handed_out_when_all_before_it_is_durable(host: Host) -> None:
    """Whoever has heard how a run ended finds all of it, whatever happens in the next moment."""

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
    all_before_a_step_is_durable_when_it_begins,
    what_is_waited_for_is_durable,
    a_child_is_born_when_all_before_it_is_durable,
    a_crash_while_only_reading_leaves_no_hole,
    a_result_is_handed_out_when_all_before_it_is_durable,
)
