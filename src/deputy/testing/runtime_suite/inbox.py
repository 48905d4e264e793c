"""Cases of messages: a waiting run is suspended, and its messages arrive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import json

from deputy.core.events import APPROVAL
from deputy.core.state import answer_key
from deputy.testing.runtime_suite.case_helpers import (
    MAX_WAIT_SECONDS,
    RUN,
    CallCounter,
    completed,
    opened,
    result_of,
    serving,
    until,
    until_state,
)

if TYPE_CHECKING:
    from deputy.core.outcome import Outcome
    from deputy.engine.ports import Engine, RunContext, RunStart
    from deputy.testing.runtime_suite.case_helpers import Case, Host


async def a_waiting_run_is_put_aside_and_woken(host: Host) -> None:
    """A waiting run is resumed by its message; the same message counts once."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        await run.step("before", calls.note, "before")
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
    """A message sent before a crash arrives after it."""
    calls = CallCounter()

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        await run.step("gate", calls.gated, "gate")
        return completed(run, json.decode(await run.recv("ask", "answer")))

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await calls.reached.wait()
        await engine.send(RUN, "answer", "early", key="one")
        await host.crash(engine)
    calls.gate.set()
    async with host.start(flow) as engine, serving(engine):
        assert await result_of(engine) == "early"


async def a_yes_to_one_question_approves_no_other(host: Host) -> None:
    """An answer is for its own question: not for another one, nor for one of a later round."""

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        said = json.decode(await run.recv(f"may {run.state.round}", APPROVAL, f"May I {run.state.round}?"))
        return completed(run, f"round {run.state.round}: {said}")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await until(engine, lambda status: status == "waiting")
        await engine.cancel(RUN)
        await _end(engine)
        await engine.send(RUN, APPROVAL, True, key=answer_key("may 0"))
        await engine.send(RUN, APPROVAL, True)
        await engine.resume(RUN)
        await until(engine, lambda status: status == "waiting")
        await engine.send(RUN, APPROVAL, True, key=answer_key("may 3"))
        assert await engine.send(RUN, APPROVAL, False, key=answer_key(await _awaited(engine)))
        assert await result_of(engine) == "round 1: False"


async def what_was_sent_to_a_dead_run_answers_no_later_round(host: Host) -> None:
    """A yes that was not taken before the run was cancelled approves nothing in the next round."""

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        said = json.decode(await run.recv("may", APPROVAL, f"May I {run.state.round}?"))
        return completed(run, f"round {run.state.round}: {said}")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await until(engine, lambda status: status == "waiting")
        await host.crash(engine)
    async with host.start(flow) as engine:
        await engine.cancel(RUN)
        await engine.send(RUN, APPROVAL, True, key=answer_key("may"))
        await _end(engine)
        await engine.resume(RUN)
        await until(engine, lambda status: status == "waiting")
        assert await engine.send(RUN, APPROVAL, False, key=answer_key(await _awaited(engine)))
        assert await result_of(engine) == "round 1: False"


async def each_of_two_questions_gets_its_own_answer(host: Host) -> None:
    """Two questions at once are answered in any order."""

    async def flow(run: RunContext, start: RunStart) -> Outcome:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(run.recv(name, APPROVAL, name)) for name in ("first", "second")]
        first, second = (json.decode(one.result()) for one in asked)
        return completed(run, f"first {first}, second {second}")

    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await until_state(engine, lambda state: len(state.waits) == 2)
        await engine.send(RUN, APPROVAL, True, key=answer_key("second"))
        await engine.send(RUN, APPROVAL, False, key=answer_key("first"))
        assert await result_of(engine) == "first False, second True"


async def _awaited(engine: Engine) -> str:
    """The key that the run waits for."""
    state = await engine.get(RUN)
    return "" if state is None else next(iter(state.waits))


async def _end(engine: Engine) -> None:
    async with asyncio.timeout(MAX_WAIT_SECONDS):
        await engine.result(RUN)


CASES: tuple[Case, ...] = (
    a_yes_to_one_question_approves_no_other,
    what_was_sent_to_a_dead_run_answers_no_later_round,
    each_of_two_questions_gets_its_own_answer,
    a_waiting_run_is_put_aside_and_woken,
    a_message_outlives_its_sender,
)
