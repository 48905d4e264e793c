"""Messages: a run that waits is put aside, and what was sent to it arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import json

from deputy.testing.runtime_suite.parts import RUN, Calls, completed, opened, result_of, serving, until

if TYPE_CHECKING:
    from deputy.core.outcome import Outcome
    from deputy.engine.ports import Birth, RunContext
    from deputy.testing.runtime_suite.parts import Case, Host


async def a_waiting_run_is_put_aside_and_woken(host: Host) -> None:
    """A run that waits costs nothing, and goes on when its message comes; the same message counts once."""
    calls = Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        await run.step("before", calls.note, "before", view=None)
        first = json.decode(await run.recv("ask 1", "answer", "Which?"))
        second = json.decode(await run.recv("ask 2", "answer", "And?"))
        return completed(run, f"{first}{second}")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await until(engine, lambda status: status == "waiting")
        assert await engine.send(RUN, "answer", "a", key="one")
        assert await engine.send(RUN, "answer", "a", key="one")
        assert not await engine.send(RUN, "answer", "another", key="one")
        await engine.send(RUN, "other", "x", key="three")
        await engine.send(RUN, "answer", "b", key="two")
        assert await result_of(engine) == "ab"
    assert calls.made == ["before"]


async def a_message_outlives_its_sender(host: Host) -> None:
    """What was sent before a crash is there after it."""
    calls = Calls()

    async def flow(run: RunContext, birth: Birth) -> Outcome:
        await run.step("gate", calls.gated, "gate", view=None)
        return completed(run, json.decode(await run.recv("ask", "answer")))

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await calls.reached.wait()
        await engine.send(RUN, "answer", "early", key="one")
        await host.crash(engine)
    calls.gate.set()
    async with host.start(flow) as engine, serving(engine):
        assert await result_of(engine) == "early"


CASES: tuple[Case, ...] = (
    a_waiting_run_is_put_aside_and_woken,
    a_message_outlives_its_sender,
)
