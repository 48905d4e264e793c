"""What every durable engine must do: cases that need nothing but a host to run them on.

A test suite runs `CASES` one by one: `await case(host)` with a fresh host each. A case fails by `AssertionError`.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from msgspec import json

from deputy.core.errors import StepFailed, UsageError
from deputy.core.events import CANCEL, Delivered, Lost, Noted, Opened, Requested, Returned, StepEnded
from deputy.core.outcome import Cancelled, Completed, Failed
from deputy.core.request import Grant, Hop, Lineage, Request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from deputy.core.outcome import Outcome
    from deputy.engine.ports import Birth, Engine, RunContext, Workflow

PATIENCE_SECONDS = 20.0
RUN = "sess_1_root00"
_LOOK_SECONDS = 0.002


class Host(Protocol):
    """Where a case's engines run. What one engine wrote, the next one finds."""

    def start(self, workflow: Workflow) -> AbstractAsyncContextManager[Engine]:
        """An engine that carries runs out by this flow; leaving it is an orderly end of its process."""
        ...

    async def crash(self, engine: Engine) -> None:
        """End an engine as kill -9 would: nothing more is written, nothing is given up."""
        ...


# --- steps ------------------------------------------------------------------------------------------------------------


async def a_finished_step_is_never_taken_again(host: Host) -> None:
    """What a step gave comes back after a crash, without the step."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        first = await run.step("first", calls.note, "one", view=None)
        await run.step("second", calls.gated, "two", view=None)
        assert isinstance(first, Noted)
        return _completed(run, f"{first.content}")

    assert await _crash_in_the_gate_and_go_on(host, flow, calls) == "one"
    assert calls.made == ["one", "two", "two"]


async def a_step_that_must_not_repeat_is_lost(host: Host) -> None:
    """A step that may not be repeated, and was under way in the crash, is reported as unknown."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        event = await run.step("pay", calls.gated, "pay", view=None, repeatable=False)
        return _completed(run, "unknown" if isinstance(event, Lost) else "known")

    assert await _crash_in_the_gate_and_go_on(host, flow, calls) == "unknown"
    assert calls.made == ["pay"]


async def a_failed_step_fails_alike_when_replayed(host: Host) -> None:
    """A body's own error ends the step, now and in every replay."""
    calls = _Calls()

    async def fail(args: str, view: None) -> Noted:
        calls.made.append(args)
        raise UsageError("args", args, "something else")

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        try:
            await run.step("bad", fail, "bad", view=None)
        except StepFailed as failure:
            await run.step("gate", calls.gated, "gate", view=None)
            return _completed(run, failure.error.message)
        return _completed(run, "no failure")

    assert "something else" in await _crash_in_the_gate_and_go_on(host, flow, calls)
    assert calls.made == ["bad", "gate", "gate"]


async def a_key_serves_one_operation(host: Host) -> None:
    """Two operations under one key would take each other's result: refused."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        await run.step("same", calls.note, "one", view=None)
        try:
            await run.step("same", calls.note, "two", view=None)
        except UsageError:
            return _completed(run, "refused")
        return _completed(run, "allowed")

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        assert await _result(engine) == "refused"


async def time_and_ids_are_the_same_when_replayed(host: Host) -> None:
    """Clock and ids come from the record."""
    calls = _Calls()
    seen: list[tuple[float, str]] = []

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        name = await run.new_id("child")
        await run.record("note", Noted(content="x"))
        seen.append((run.now(), name))
        await run.step("gate", calls.gated, "gate", view=None)
        return _completed(run, "done")

    await _crash_in_the_gate_and_go_on(host, flow, calls)
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert seen[0][0] > 0


async def a_sleep_counts_from_its_first_beginning(host: Host) -> None:
    """A wait that is over is not waited again."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        await run.sleep("nap", 0.01)
        before = run.now()
        await run.step("gate", calls.gated, "gate", view=None)
        await run.sleep("long", -1.0)
        return _completed(run, "awake" if run.now() >= before else "before its time")

    assert await _crash_in_the_gate_and_go_on(host, flow, calls) == "awake"


# --- what is durable when ---------------------------------------------------------------------------------------------


async def all_before_a_step_is_durable_when_it_begins(host: Host) -> None:
    """A crash in the first moment of a step finds all that was done before it, and that it has begun."""
    death = _Death(host)
    seen: list[str] = []

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        await run.step("paid", death.note, "paid", view=None)
        await run.record("said", Noted(content="said"))
        seen.append(await run.new_id("child"))
        await run.step("die", death.come, "die", view=None)
        return _completed(run, seen[-1])

    await death.meet(flow)
    async with host.start(flow) as engine:
        state = await engine.get(RUN)
        assert state is not None
        assert state.counts.notes == 2
        assert [key for key in state.under_way if key.endswith("die")]
        async with _serving(engine):
            assert await _result(engine) == seen[0] == seen[1]
    assert death.made == ["paid", "die", "die"]


async def what_is_waited_for_is_durable(host: Host) -> None:
    """After `durable`, a crash takes nothing away."""
    death = _Death(host)

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        await run.step("paid", death.note, "paid", view=None)
        await run.step("read", death.note, "read", view=None, reads=True)
        await run.durable()
        await death.come("die", None)
        return _completed(run, "done")

    await death.meet(flow)
    async with host.start(flow) as engine, _serving(engine):
        assert await _result(engine) == "done"
    assert death.made == ["paid", "read", "die", "die"]


async def a_child_is_born_when_all_before_it_is_durable(host: Host) -> None:
    """Whatever a child does first, all that its caller did before it stands."""
    death = _Death(host)

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        if isinstance(birth, Requested):
            await death.come("child", None)
            return _completed(run, "from the child")
        await run.step("paid", death.note, "paid", view=None)
        child = await run.spawn("call", _requested(run, "sess_1_child0", "c"))
        return _completed(run, (await run.join("join", child)).summary)

    await death.meet(flow)
    async with host.start(flow) as engine, _serving(engine):
        assert await _result(engine) == "from the child"
    assert death.made == ["paid", "child", "child"]


async def a_crash_while_only_reading_leaves_no_hole(host: Host) -> None:
    """Reading need not wait; but nothing done later is kept when something done earlier is not."""
    death = _Death(host)
    steps = ("paid", "first", "second")

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        for name in steps:
            await run.step(name, death.note, name, view=None, reads=name != "paid")
        await run.step("die", death.come, "die", view=None, reads=True)
        return _completed(run, "done")

    await death.meet(flow)
    async with host.start(flow) as engine, _serving(engine):
        assert await _result(engine) == "done"
    again = death.made[len(steps) + 1 : -1]
    assert again == [*steps][len(steps) - len(again) :]


async def a_result_is_handed_out_when_all_before_it_is_durable(host: Host) -> None:
    """Whoever has heard how a run ended finds all of it, whatever happens in the next moment."""

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        for number in range(5):
            await run.record(f"note {number}", Noted(content=str(number)))
        return _completed(run, "done")

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        assert await _result(engine) == "done"
        await host.crash(engine)
    async with host.start(flow) as engine:
        records = [record async for record in engine.events(RUN)]
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert sum(isinstance(record.event, Noted) for record in records) == 5
        assert isinstance(records[-1].event, Returned)


# --- children ---------------------------------------------------------------------------------------------------------


async def a_child_is_spawned_once(host: Host) -> None:
    """Whatever is retried or replayed, a key spawns one child, which runs once."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        if isinstance(birth, Requested):
            await run.step("work", calls.note, "child", view=None)
            return _completed(run, "from the child")
        child = await run.spawn("call_1", _requested(run, "sess_1_child0", "c"))
        outcome = await run.join("call_1:join", child)
        await run.step("gate", calls.gated, "gate", view=None)
        return _completed(run, outcome.summary)

    assert await _crash_in_the_gate_and_go_on(host, flow, calls) == "from the child"
    assert calls.made == ["child", "gate", "gate"]


async def a_child_goes_on_after_a_crash(host: Host) -> None:
    """A child under way in the crash is gone on with, and its parent gets the outcome."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        if isinstance(birth, Requested):
            await run.step("work", calls.gated, "child", view=None)
            return _completed(run, "late")
        child = await run.spawn("call_1", _requested(run, "sess_1_child0", "c"))
        return _completed(run, (await run.join("call_1:join", child)).summary)

    assert await _crash_in_the_gate_and_go_on(host, flow, calls) == "late"
    assert calls.made == ["child", "child"]


async def a_failing_child_stops_nobody(host: Host) -> None:
    """A child's mistake is an outcome for its parent; its siblings go on."""

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        if isinstance(birth, Requested):
            if birth.label == "bad":
                raise ZeroDivisionError("a mistake")
            return _completed(run, birth.label)
        children = [
            await run.spawn(f"call_{n}", _requested(run, f"sess_1_child{n}", label))
            for n, label in enumerate(("a", "bad", "b"))
        ]
        outcomes = [await run.join(f"join_{n}", child) for n, child in enumerate(children)]
        return _completed(run, ",".join(type(outcome).__name__ for outcome in outcomes))

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        assert await _result(engine) == "Completed,Failed,Completed"
        failed = await engine.result("sess_1_child1")
        assert isinstance(failed, Failed)
        assert "a mistake" in failed.errors[0].message


async def a_join_delivers_the_childs_result(host: Host) -> None:
    """A child's result is kept until its parent has it."""

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        if isinstance(birth, Requested):
            return _completed(run, "child")
        child = await run.spawn("call", _requested(run, "sess_1_child0", "c"))
        await run.join("join", child)
        return _completed(run, "done")

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        await _result(engine)
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
    """A run can stop a child of its own, with all below it, and goes on from its end."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        if isinstance(birth, Requested):
            await run.step("gate", calls.gated, "child", view=None)
            return _completed(run, "too late")
        slow = await run.spawn("slow", _requested(run, "sess_1_slow00", "slow"))
        await calls.reached.wait()
        await run.stop(slow, "enough")
        await run.stop(slow, "enough")
        return _completed(run, (await run.join("join", slow)).status)

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        assert await _result(engine) == "cancelled"


async def a_child_works_anew_in_its_own_rounds(host: Host) -> None:
    """A child that completed can be set to work again, once for each time that is asked, and each end is joined."""

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        if isinstance(birth, Requested):
            return _completed(run, f"round {run.state.round}")
        child = await run.spawn("call", _requested(run, "sess_1_child0", "c"))
        ends = [(await run.join("join 0", child)).summary]
        for number in (1, 2):
            await run.again(f"again {number}", child, "better", anew=True)
            ends.append((await run.join(f"join {number}", child)).summary)
        await run.again("again 3", child)
        return _completed(run, ", ".join([*ends, (await run.join("join 3", child)).summary]))

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        assert await _result(engine) == "round 0, round 1, round 2, round 2"


async def a_chain_that_waits_for_its_last_goes_on_after_a_crash(host: Host) -> None:
    """Runs that each wait for the one below go on from where they were, whoever was in memory."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        await run.step("before", calls.note, birth.label, view=None)
        if isinstance(birth, Requested) and birth.label == "4":
            await run.step("gate", calls.gated, "last", view=None)
            return _completed(run, "end")
        number = int(birth.label) + 1 if isinstance(birth, Requested) else 1
        child = await run.spawn("call", _requested(run, f"sess_1_deep0{number}", str(number)))
        return _completed(run, f"{number} {(await run.join('join', child)).summary}")

    assert await _crash_in_the_gate_and_go_on(host, flow, calls) == "1 2 3 4 end"
    assert [made for made in calls.made if made != "last"] == ["root", "1", "2", "3", "4"]


# --- messages ---------------------------------------------------------------------------------------------------------


async def a_waiting_run_is_put_aside_and_woken(host: Host) -> None:
    """A run that waits costs nothing, and goes on when its message comes; the same message counts once."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        await run.step("before", calls.note, "before", view=None)
        first = json.decode(await run.recv("ask 1", "answer", "Which?"))
        second = json.decode(await run.recv("ask 2", "answer", "And?"))
        return _completed(run, f"{first}{second}")

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        await _until(engine, lambda status: status == "waiting")
        await engine.send(RUN, "answer", "a", key="one")
        await engine.send(RUN, "answer", "a", key="one")
        await engine.send(RUN, "other", "x", key="three")
        await engine.send(RUN, "answer", "b", key="two")
        assert await _result(engine) == "ab"
    assert calls.made == ["before"]


async def a_message_outlives_its_sender(host: Host) -> None:
    """What was sent before a crash is there after it."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        await run.step("gate", calls.gated, "gate", view=None)
        return _completed(run, json.decode(await run.recv("ask", "answer")))

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        await calls.reached.wait()
        await engine.send(RUN, "answer", "early", key="one")
        await host.crash(engine)
    calls.gate.set()
    async with host.start(flow) as engine, _serving(engine):
        assert await _result(engine) == "early"


# --- the host's side --------------------------------------------------------------------------------------------------


async def a_run_is_submitted_once(host: Host) -> None:
    """The second submission of an id changes nothing, also in another process."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        await run.step("work", calls.note, "work", view=None)
        return _completed(run, "done")

    async with host.start(flow) as engine:
        assert await engine.submit(RUN, _opened())
        assert not await engine.submit(RUN, _opened())
        await _result(engine)
    async with host.start(flow) as engine:
        assert not await engine.submit(RUN, _opened())
        assert await _result(engine) == "done"
    assert calls.made == ["work"]


async def a_cancellation_stops_the_subtree(host: Host) -> None:
    """All below a cancelled run end as cancelled, with their notes."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        if isinstance(birth, Requested):
            await run.record("note", Noted(content="found something"))
            await run.step("gate", calls.gated, "child", view=None)
            return _completed(run, "too late")
        child = await run.spawn("call", _requested(run, "sess_1_child0", "c"))
        return _completed(run, (await run.join("join", child)).summary)

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        await calls.reached.wait()
        await engine.cancel(RUN, "enough")
        root, child = await engine.result(RUN), await engine.result("sess_1_child0")
        assert isinstance(root, Cancelled)
        assert isinstance(child, Cancelled)
        assert child.notes == ("found something",)
        assert not await engine.list()


async def a_waiting_run_can_be_cancelled(host: Host) -> None:
    """A run that is put aside ends when it is cancelled, also from another process."""

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        await run.recv("ask", "answer")
        return _completed(run, "answered")

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        await _until(engine, lambda status: status == "waiting")
    async with host.start(flow) as engine:
        await engine.cancel(RUN)
        assert isinstance(await engine.result(RUN), Cancelled)


async def a_cancellation_is_heeded_when_nobody_was_there(host: Host) -> None:
    """A run that was cancelled while it was left behind is ended, not gone on with."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        await run.step("gate", calls.gated, "gate", view=None)
        return _completed(run, "too late")

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        await calls.reached.wait()
        await host.crash(engine)
    calls.gate.set()
    async with host.start(flow) as engine:
        await engine.cancel(RUN, "not needed any more")
        assert isinstance(await engine.result(RUN), Cancelled)
    assert calls.made == ["gate"]


async def a_run_that_ended_can_be_resumed(host: Host) -> None:
    """Another round has its own keys and its own ending, and knows what was before."""

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        notes = sum(isinstance(record.event, Noted) for record in run.past)
        await run.record("note", Noted(content=f"round {run.state.round}"))
        return _completed(run, f"round {run.state.round} after {notes} notes")

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        assert await _result(engine) == "round 0 after 0 notes"
    async with host.start(flow) as engine:
        assert await engine.resume(RUN, "go on") == 1
        assert await _result(engine) == "round 1 after 1 notes"
        records = [record async for record in engine.events(RUN)]
        assert sum(isinstance(record.event, Returned) for record in records) == 2


async def a_cancel_that_came_too_late_stops_no_later_round(host: Host) -> None:
    """Who asks for a stop means what is under way, not what is resumed later."""

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        # Long enough for an engine to look at its messages twice.
        await run.sleep("nap", 0.6 * run.state.round)
        return _completed(run, f"round {run.state.round}")

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        assert await _result(engine) == "round 0"
        await engine.send(RUN, CANCEL, "too late")
        await engine.resume(RUN)
        assert await _result(engine) == "round 1"


async def events_come_in_order_without_holes(host: Host) -> None:
    """A watcher gets every record once, in order, from wherever it starts."""

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        for number in range(20):
            await run.record(f"note {number}", Noted(content=str(number)))
            run.emit({"progress": number})
        return _completed(run, "done")

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        records = [record async for record in engine.events(RUN)]
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert sum(isinstance(record.event, Noted) for record in records) == 20
        assert isinstance(records[-1].event, Returned)
        later = [record async for record in engine.events(RUN, after=5)]
        assert later == records[5:]


async def an_ended_run_can_be_forgotten(host: Host) -> None:
    """Purging removes a run and what is below it; a live one is refused."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        if isinstance(birth, Requested):
            return _completed(run, "child")
        await run.join("join", await run.spawn("call", _requested(run, "sess_1_child0", "c")))
        await run.step("gate", calls.gated, "gate", view=None)
        return _completed(run, "done")

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        await calls.reached.wait()
        try:
            await engine.purge(RUN)
        except UsageError:
            calls.gate.set()
        await _result(engine)
        await engine.purge(RUN)
        assert await engine.get(RUN) is None
        assert await engine.get("sess_1_child0") is None


async def an_orderly_end_leaves_runs_to_the_next(host: Host) -> None:
    """Leaving an engine ends no run; the next one goes on with it."""
    calls = _Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        await run.step("gate", calls.gated, "gate", view=None)
        return _completed(run, "done")

    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        await calls.reached.wait()
    calls.gate.set()
    async with host.start(flow) as engine, _serving(engine):
        assert await _result(engine) == "done"
        assert not any(isinstance(record.event, Delivered) for record in [r async for r in engine.events(RUN)])


CASES: tuple[Callable[[Host], Awaitable[None]], ...] = (
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
    a_child_is_spawned_once,
    a_child_goes_on_after_a_crash,
    a_failing_child_stops_nobody,
    a_join_delivers_the_childs_result,
    a_child_that_is_stopped_ends_and_is_joined,
    a_child_works_anew_in_its_own_rounds,
    a_chain_that_waits_for_its_last_goes_on_after_a_crash,
    a_waiting_run_is_put_aside_and_woken,
    a_message_outlives_its_sender,
    a_run_is_submitted_once,
    a_cancellation_stops_the_subtree,
    a_waiting_run_can_be_cancelled,
    a_cancellation_is_heeded_when_nobody_was_there,
    a_run_that_ended_can_be_resumed,
    a_cancel_that_came_too_late_stops_no_later_round,
    events_come_in_order_without_holes,
    an_ended_run_can_be_forgotten,
    an_orderly_end_leaves_runs_to_the_next,
)

# --- what the cases are made of ---------------------------------------------------------------------------------------


class _Calls:
    """Step bodies that are counted, and a gate that one of them waits at."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()

    async def note(self, args: str, view: None) -> Noted:
        self.made.append(args)
        return Noted(content=args)

    async def gated(self, args: str, view: None) -> StepEnded:
        self.made.append(args)
        self.reached.set()
        await self.gate.wait()
        return StepEnded(step=args)


class _Death:
    """Step bodies that are counted, one of which ends its process by its first act."""

    def __init__(self, host: Host) -> None:
        self.made: list[str] = []
        self._host = host
        self._dying: Engine | None = None
        self._is_over = asyncio.Event()

    async def meet(self, flow: Workflow) -> None:
        """Run a flow until it has died."""
        async with self._host.start(flow) as self._dying:
            await self._dying.submit(RUN, _opened())
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._is_over.wait()

    async def note(self, args: str, view: None) -> Noted:
        """Do something."""
        self.made.append(args)
        return Noted(content=args)

    async def come(self, args: str, view: None) -> StepEnded:
        """Die, once."""
        self.made.append(args)
        if not self._is_over.is_set() and self._dying is not None:
            await self._host.crash(self._dying)
            self._is_over.set()
            await asyncio.get_running_loop().create_future()
        return StepEnded(step=args)


@asynccontextmanager
async def _serving(engine: Engine) -> AsyncGenerator[None]:
    """Let an engine carry out what others left, for a while."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(engine.serve())
        yield
        task.cancel()


async def _crash_in_the_gate_and_go_on(host: Host, flow: Workflow, calls: _Calls) -> str:
    async with host.start(flow) as engine:
        await engine.submit(RUN, _opened())
        await calls.reached.wait()
        await host.crash(engine)
    calls.gate.set()
    async with host.start(flow) as engine, _serving(engine):
        return await _result(engine)


async def _result(engine: Engine) -> str:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return (await engine.result(RUN)).summary


async def _until(engine: Engine, holds: Callable[[str], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            state = await engine.get(RUN)
            if state is not None and holds(state.status):
                return
            await asyncio.sleep(_LOOK_SECONDS)


def _opened() -> Opened:
    return Opened(lineage=Lineage.root(RUN), label="root")


def _requested(run: RunContext, child: str, label: str) -> Requested:
    caller = run.state.lineage or Lineage.root(run.run)
    request = Request(
        session_id=child, target=Hop(f"task:{label}", "task"), prompt=label, caller=caller, caller_grant=Grant()
    )
    return Requested(request=request, label=label)


def _completed(run: RunContext, summary: str) -> Outcome:
    return Completed(lineage=run.state.lineage or Lineage.root(run.run), summary=summary)
