"""Cases of the engine's caller: submit, cancel, resume, watch, purge and leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.errors import UsageError
from deputy.core.events import CANCEL, Delivered, Noted, Requested, Returned
from deputy.core.outcome import Cancelled
from deputy.testing.runtime_suite.case_helpers import (
    RUN,
    CallCounter,
    completed,
    opened,
    requested,
    result_of,
    serving,
    until,
)

if TYPE_CHECKING:
    from deputy.core.outcome import Outcome
    from deputy.engine.ports import RunContext, RunStart
    from deputy.testing.runtime_suite.case_helpers import Case, Host


async def a_run_is_submitted_once(host: Host) -> None:
    """The second submission of an id changes nothing, also in another process."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        await run.step("work", calls.note, "work")
        return completed(run, "done")

    async with host.start(flow) as engine:
        assert await engine.submit(RUN, opened())
        assert not await engine.submit(RUN, opened())
        await result_of(engine)
    async with host.start(flow) as engine:
        assert not await engine.submit(RUN, opened())
        assert await result_of(engine) == "done"
    assert calls.made == ["work"]


async def a_cancellation_stops_the_subtree(host: Host) -> None:
    """All below a cancelled run end as cancelled, with their notes."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        if isinstance(start, Requested):
            await run.record("note", Noted(content="found something"))
            await run.step("gate", calls.gated, "child")
            return completed(run, "too late")
        child = await run.spawn("call", requested(run, "sess_1_child0", "c"))
        return completed(run, (await run.join("join", child)).summary)

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await calls.reached.wait()
        await engine.cancel(RUN, "enough")
        root, child = await engine.result(RUN), await engine.result("sess_1_child0")
        assert isinstance(root, Cancelled)
        assert isinstance(child, Cancelled)
        assert child.notes == ("found something",)
        assert not await engine.list()


async def a_waiting_run_can_be_cancelled(host: Host) -> None:
    """A suspended run ends when it is cancelled, also from another process."""

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        await run.recv("ask", "answer")
        return completed(run, "answered")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await until(engine, lambda status: status == "waiting")
    async with host.start(flow) as engine:
        await engine.cancel(RUN)
        assert isinstance(await engine.result(RUN), Cancelled)


async def a_cancellation_of_an_orphan_is_heeded(host: Host) -> None:
    """A run that was cancelled while orphaned is ended, not resumed."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        await run.step("gate", calls.gated, "gate")
        return completed(run, "too late")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await calls.reached.wait()
        await host.crash(engine)
    calls.gate.set()
    async with host.start(flow) as engine:
        await engine.cancel(RUN, "not needed any more")
        assert isinstance(await engine.result(RUN), Cancelled)
    assert calls.made == ["gate"]


async def a_run_that_ended_can_be_resumed(host: Host) -> None:
    """Another round has its own keys and its own end, and sees the history."""

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        notes = sum(isinstance(record.event, Noted) for record in run.history)
        await run.record("note", Noted(content=f"round {run.state.round}"))
        return completed(run, f"round {run.state.round} after {notes} notes")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        assert await result_of(engine) == "round 0 after 0 notes"
    async with host.start(flow) as engine:
        assert await engine.resume(RUN, "go on") == 1
        assert await result_of(engine) == "round 1 after 1 notes"
        records = [record async for record in engine.events(RUN)]
        assert sum(isinstance(record.event, Returned) for record in records) == 2


async def a_cancel_that_came_too_late_stops_no_later_round(host: Host) -> None:
    """A cancel is for the current round, not for a later one."""

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        # Long enough for an engine to poll its messages twice.
        await run.sleep("nap", 0.6 * run.state.round)
        return completed(run, f"round {run.state.round}")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        assert await result_of(engine) == "round 0"
        await engine.send(RUN, CANCEL, "too late")
        await engine.resume(RUN)
        assert await result_of(engine) == "round 1"


async def events_come_in_order_without_holes(host: Host) -> None:
    """A watcher gets every record once, in order, from wherever it starts."""

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        for number in range(20):
            await run.record(f"note {number}", Noted(content=str(number)))
            run.emit({"progress": number})
        return completed(run, "done")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        records = [record async for record in engine.events(RUN)]
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert sum(isinstance(record.event, Noted) for record in records) == 20
        assert isinstance(records[-1].event, Returned)
        later = [record async for record in engine.events(RUN, after=5)]
        assert later == records[5:]


async def an_ended_run_can_be_forgotten(host: Host) -> None:
    """Purging removes a run and what is below it; a live one is refused."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        if isinstance(start, Requested):
            return completed(run, "child")
        await run.join("join", await run.spawn("call", requested(run, "sess_1_child0", "c")))
        await run.step("gate", calls.gated, "gate")
        return completed(run, "done")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await calls.reached.wait()
        try:
            await engine.purge(RUN)
        except UsageError:
            calls.gate.set()
        await result_of(engine)
        await engine.purge(RUN)
        assert await engine.get(RUN) is None
        assert await engine.get("sess_1_child0") is None


async def an_orderly_end_leaves_runs_to_the_next(host: Host) -> None:
    """Leaving an engine ends no run; the next engine resumes it."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        await run.step("gate", calls.gated, "gate")
        return completed(run, "done")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await calls.reached.wait()
    calls.gate.set()
    async with host.start(flow) as engine, serving(engine):
        assert await result_of(engine) == "done"
        assert not any(isinstance(record.event, Delivered) for record in [r async for r in engine.events(RUN)])


CASES: tuple[Case, ...] = (
    a_run_is_submitted_once,
    a_cancellation_stops_the_subtree,
    a_waiting_run_can_be_cancelled,
    a_cancellation_of_an_orphan_is_heeded,
    a_run_that_ended_can_be_resumed,
    a_cancel_that_came_too_late_stops_no_later_round,
    events_come_in_order_without_holes,
    an_ended_run_can_be_forgotten,
    an_orderly_end_leaves_runs_to_the_next,
)
