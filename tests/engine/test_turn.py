from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from msgspec import UNSET, json
from tests.support.scripts import call, talk, turn

from deputy.core.conversation import (
    AssistantMessage,
    Conversation,
    GenerationSettings,
    RetryNotice,
    Stop,
    Text,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    Toolset,
)
from deputy.core.events import ModelCallEnded
from deputy.core.limits import Budget
from deputy.core.model_errors import ContextExhausted, ModelError, ModelRefused, Silent, StreamCut
from deputy.core.redaction import Redactor
from deputy.engine.budget import BudgetLedger
from deputy.engine.timeouts import SharedTimer, StepCancelled
from deputy.engine.turn import TurnInput, call_model
from deputy.testing import run_in_virtual_time

if TYPE_CHECKING:
    from tests.support.house import House

    from deputy.core.progress import Progress


class Thinker:
    """A model that thinks aloud, four times a second for three seconds."""

    name = "thinker"
    context_window = 1000

    async def stream(self, conversation: Conversation, tools: Toolset, settings: GenerationSettings):
        for _ in range(12):
            yield ThinkingDelta("hm, let me see. ")
            await asyncio.sleep(0.25)
        yield TextDelta("Three.")
        yield TokenUsage(input_tokens=90, output_tokens=10)
        yield Stop(reason="end", message=AssistantMessage(parts=(Text(text="Three."),), origin="thinker"))


class Breaking:
    """A model that streams some text, and then fails or stalls."""

    name = "breaking"
    context_window = 1000
    is_metered = True

    def __init__(self, *events: object) -> None:
        self._events = events

    async def stream(self, conversation: Conversation, tools: Toolset, settings: GenerationSettings):
        for event in self._events:
            if isinstance(event, ModelError):
                raise event
            yield event
        await asyncio.sleep(3600)


def called(model: object, seen: list[Progress], seconds: float | None = None) -> ModelCallEnded:
    return run_in_virtual_time(call_model(turn_input(model, seen, seconds)))


def turn_input(model: object, seen: list[Progress], seconds: float | None = None) -> TurnInput:
    agent = SimpleNamespace(
        label="scout",
        model=model,
        window=1000,
        ledger=BudgetLedger(Budget()),
        max_cost=lambda _in, _out: None,
        seconds=None,
        emit=seen.append,
        redactor=Redactor(),
        timer=SharedTimer(),
    )
    return TurnInput(
        agent=agent,
        conversation=Conversation("system"),
        toolset=Toolset(),
        settings=GenerationSettings(),
        tokens=50,
        estimate=50,
        seconds=seconds,
    )


def test_watchers_see_how_much_a_model_thinks_and_never_what():
    seen: list[Progress] = []
    ended = called(Thinker(), seen)
    thought = [one for one in seen if one.event == "thinking"]
    assert [one.output for one in thought] == list(range(4, 52, 4))
    assert all(one.content is None for one in thought)
    assert (ended.context_tokens, ended.context_window) == (100, 1000)


@pytest.mark.parametrize(("events", "shown"), [((), ["thinking"]), ((TextDelta("One. "),), ["text"])])
def test_watchers_see_that_a_silent_model_is_at_work_and_not_the_tool_call_before(events, shown):
    seen: list[Progress] = []
    called(Breaking(*events), seen, seconds=2.0)
    assert [one.event for one in seen] == shown


@pytest.mark.parametrize(("seconds", "shown"), [(5.0, ["retry"]), (7.0, ["retry", "thinking"])])
def test_a_retry_stays_visible_while_its_wait_lasts(seconds, shown):
    seen: list[Progress] = []
    called(Breaking(RetryNotice(attempt=1, of=5, seconds=6, code="OVERLOADED", message="busy")), seen, seconds=seconds)
    assert [one.event for one in seen] == shown


@pytest.mark.rule("usage.estimate")
@pytest.mark.parametrize(
    ("code", "wait", "requests"), [("OVERLOADED", 9, 0), ("OVERLOADED", 1, 1), ("NETWORK_FAILED", 1, 1)]
)
def test_a_request_that_did_not_reach_the_provider_is_not_charged(code, wait, requests):
    ended = called(Breaking(RetryNotice(attempt=1, of=5, seconds=wait, code=code, message="x")), [], seconds=5.0)
    assert (ended.usage.requests, ended.usage.input) == (requests, 50 * requests)


@pytest.mark.rule("handin.first")
@pytest.mark.parametrize(
    ("events", "kept"),
    [
        ((TextDelta("One. "), TextDelta("Two. ")), "One. Two."),
        ((TextDelta("One. "), Silent("no progress")), "One."),
        ((TextDelta("One. "), StreamCut("lost")), "One."),
        ((TextDelta("One. "), RetryNotice(attempt=1, seconds=0, code="SILENT", message="again")), None),
        ((TextDelta("One. "), ModelRefused("not this")), None),
        ((TextDelta("One. "), ContextExhausted("too long")), None),
        ((ThinkingDelta("hm"),), None),
    ],
)
def test_the_text_of_a_call_that_was_cut_short_is_kept_and_charged(events, kept: str | None):
    ended = called(Breaking(*events), [], seconds=30)
    assert ended.error is not None
    assert ended.is_cut
    text = None if ended.message is UNSET else json.decode(ended.message, type=AssistantMessage).text
    assert text == kept
    assert (ended.usage.estimated, ended.usage.input >= 50, ended.usage.requests >= 1) == (True, True, True)


@pytest.mark.rule("usage.estimate")
def test_a_call_that_is_cancelled_is_charged_with_the_text_that_it_has_streamed():
    async def cancelled() -> ModelCallEnded:
        calling = asyncio.ensure_future(call_model(turn_input(Breaking(TextDelta("One. ")), [])))
        asyncio.get_running_loop().call_later(5, calling.cancel)
        with pytest.raises(StepCancelled) as stopped:
            await calling
        return stopped.value.event

    ended = run_in_virtual_time(cancelled())
    assert isinstance(ended, ModelCallEnded)
    assert (ended.usage.requests, ended.usage.input, ended.usage.estimated) == (1, 50, True)
    assert ended.error is not None
    assert ended.error.message.endswith("Its usage up to then is counted.")
    assert json.decode(ended.message, type=AssistantMessage).text == "One."


def test_the_record_of_a_model_call_says_how_full_the_context_is(house: House):
    (house.workspace / "a.txt").write_text("hello\n")
    house.script(talk(turn("I look.", call("Read", path="a.txt")), turn("done")))
    outcome = house.one(window=4000)
    ended = [record.event for record in house.records(outcome.session_id) if isinstance(record.event, ModelCallEnded)]
    assert [(one.context_tokens, one.context_window) for one in ended] == [(120, 4000)] * 2
