"""The final turn after a turn that was cut short: it has its own time, and the text streamed before it is kept."""

import asyncio
import json

import pytest
from tests.support.house import House
from tests.support.scripts import call, turn

from deputy.core.limits import Budget
from deputy.core.outcome import Cancelled, Completed, Partial
from deputy.core.task import Task
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.testing import ProviderServer

WORDS = " ".join(f"The parser drops the last line of file {number}." for number in range(60))
MODELS = ["anthropic:claude-sonnet-4-5", "openai:gpt-5", "groq:llama-3.3-70b-versatile", "google:gemini-2.5-pro"]


def stalling(after: float = 0.7):
    """A fault that streams a part of the answer, and then nothing more."""

    async def fault(exchange, events):
        await exchange.begin()
        exchange.send_all(events[: int(len(events) * after)])
        await exchange.pause(600)

    return fault


def slow(*turns):
    # A turn that stalls is never asked for a second time, so the script is not strict.
    return ProviderServer(*turns, faults={"stall": stalling()}, strict=False)


def transcript(house: House, outcome) -> dict:
    (path,) = (house.home / "subagent").glob(f"*{outcome.session_id}.transcript.json")
    return json.loads(path.read_text())


@pytest.mark.rule("handin.first")
@pytest.mark.rule("time.handin")
@pytest.mark.parametrize("model", MODELS)
def test_a_slow_first_turn_is_followed_by_a_final_turn_that_sees_its_text(house: House, model: str):
    with slow(turn(WORDS, faults=("stall",)), turn("What I have: the last line is dropped.")) as provider:
        house.use(provider, model)
        outcome = house.one(Task(label="scout", prompt="Look.", timeout=2.0))
    assert isinstance(outcome, Partial)
    assert (outcome.errors[0].code, outcome.report) == ("TIMEOUT", "What I have: the last line is dropped.")
    assert outcome.errors[0].message == "The time limit of 2 s was nearly reached."
    assert "The parser drops the last line of file 0." in json.dumps(provider.asked[1].body)
    said = [one["content"] for one in transcript(house, outcome)["messages"] if one["role"] == "assistant"]
    assert len(said) == 2
    assert said[0] in WORDS
    assert len(said[0]) > len(WORDS) / 3


@pytest.mark.rule("handin.first")
def test_the_text_that_was_streamed_is_the_report_when_the_final_turn_is_too_slow_too(house: House):
    with slow(turn(WORDS, faults=("stall",)), turn("In short: " + WORDS, faults=("stall",))) as provider:
        house.use(provider, "groq:llama-3.3-70b-versatile")
        outcome = house.one(Task(label="scout", prompt="Look.", timeout=2.0))
    assert isinstance(outcome, Partial)
    assert outcome.errors[0].message == "The time limit of 2 s was reached."
    first, last = outcome.report.split("\n\n")
    assert first in WORDS
    assert last in "In short: " + WORDS
    assert outcome.usage.estimated
    reader = SqliteQueries.open(house.home)
    assert reader is not None
    with reader:
        assert [(error.code, error.count) for error in reader.errors(10)] == [("TIMEOUT", 1)]
    assert (outcome.usage.requests, outcome.usage.input > 200, outcome.usage.output > 500) == (2, True, True)


@pytest.mark.rule("handin.first")
def test_a_cancelled_call_keeps_its_text_and_the_resumed_one_sees_it(house: House):
    with slow(turn(WORDS, faults=("stall",)), turn("Done.")) as provider:
        house.use(provider)

        async def go():
            async with house.open() as runtime:
                run = await house.begin(runtime, Task(label="scout", prompt="Look."))
                await house.until(lambda: any(one.event == "text" for one in house.seen))
                (child,) = await runtime.journal.descendants(run)
                await runtime.engine.cancel(child.run)
                return await runtime.engine.result(child.run)

        cancelled = asyncio.run(go())
        assert isinstance(cancelled, Cancelled)
        assert len(cancelled.report) > len(WORDS) / 3
        assert cancelled.report in WORDS
        assert cancelled.usage.output > 100
        done = house.resume(cancelled.session_id)
    assert isinstance(done, Completed)
    messages = provider.asked[1].body["messages"]
    assert [one["role"] for one in messages] == ["user", "assistant", "user"]
    assert cancelled.report in json.dumps(messages[1])


@pytest.mark.rule("prompt.prefix")
@pytest.mark.rule("time.handin")
@pytest.mark.parametrize(
    ("model", "choice"),
    [
        ("anthropic:claude-sonnet-4-5", ("tool_choice", {"type": "none"})),
        ("openai:gpt-5", ("tool_choice", "none")),
        ("groq:llama-3.3-70b-versatile", ("tool_choice", "none")),
        ("google:gemini-2.5-pro", ("toolConfig", {"functionCallingConfig": {"mode": "NONE"}})),
    ],
)
def test_the_final_turn_keeps_the_tools_and_calls_none_of_them(house: House, model, choice):
    script = (turn("", call("Glob", pattern="*")), turn("All I know.", call("Glob", pattern="*")))
    with ProviderServer(*script) as provider:
        house.use(provider, model)
        outcome = house.one(Task(label="scout", prompt="Look.", budget=Budget(requests=2)))
    first, last = (request.body for request in provider.asked)
    assert last["tools"] == first["tools"]
    assert last[choice[0]] == choice[1]
    assert (outcome.status, outcome.report) == ("partial", "All I know.")
    assert len(house.results(outcome)) == 1
