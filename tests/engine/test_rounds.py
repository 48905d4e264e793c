"""Runs that are refused, cancelled or resumed: each ends once, tells what was used, and goes on where it stopped."""

import asyncio

import pytest
from tests.engine.conftest import House, call, talk, turn

from deputy.core.events import Record, Refused
from deputy.core.guard import Policy
from deputy.core.outcome import Cancelled, Completed, Partial, Rejected
from deputy.core.task import Task
from deputy.journal.reader import Reader
from deputy.testing import ProviderServer


def tasks(*labels: str) -> list[Task]:
    return [Task(label=label, prompt=f"work of {label}") for label in labels]


@pytest.mark.rule("resume")
def test_who_is_resumed_is_told_to_go_on_and_hears_its_task_once(house: House):
    with ProviderServer(*[turn("more ", stop="length")] * 4, turn("Done.")) as provider:
        house.use(provider)
        outcome = house.one(*tasks("scout"))
        assert isinstance(outcome, Partial)
        assert isinstance(house.resume(outcome.session_id), Completed)
    messages = provider.asked[-1].body["messages"]
    assert messages[-1]["role"] == "user"
    assert str(messages).count("work of scout") == 1


def test_a_cancelled_call_tells_what_its_subagents_used(house: House):
    house.script(talk(turn("Begun.", call("Note", content="seen")), turn("never", delay_seconds=600), times=2))

    async def go():
        async with house.open() as runtime:
            run = await house.begin(runtime, *tasks("one", "two"))
            await house.until(lambda: sum(seen.event == "note" for seen in house.seen) == 2)
            await runtime.engine.cancel(run)
            return await runtime.engine.result(run)

    whole = asyncio.run(go())
    assert isinstance(whole, Cancelled)
    assert whole.usage.requests == 2


def test_a_refusal_is_written_once(house: House):
    house.script(talk(turn("Fine.")))
    outcomes = asyncio.run(house.delegate(*tasks("one", "two"), concurrency=1, policy=Policy(max_spawns=1)))
    refused = outcomes[1]
    assert isinstance(refused, Rejected)
    with Reader.open(house.home) as reader:
        records = [one for one in reader.records(refused.session_id) if isinstance(one, Record)]
    assert sum(isinstance(record.event, Refused) for record in records) == 1
