"""What a request is charged: a provider's report where it is plausible, else our own estimate, marked as one."""

import re
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.support.house import House
from tests.support.scripts import call, turn

from deputy.core.conversation import TokenUsage, is_plausible
from deputy.core.limits import Budget
from deputy.core.outcome import Completed, Partial
from deputy.core.task import Task
from deputy.testing import ProviderServer

CAP = 100_000
MODELS = ["anthropic:claude-sonnet-4-5", "openai:gpt-5", "groq:llama-3.3-70b-versatile", "google:gemini-2.5-pro"]
NUMBER = re.compile(
    rb'("(?:input_tokens|output_tokens|prompt_tokens|completion_tokens|promptTokenCount|candidatesTokenCount)":)\d+'
)


def reporting(value):
    """A fault that answers well, but for the numbers of tokens that it reports."""

    async def fault(exchange, events):
        await exchange.begin()
        exchange.send_all([NUMBER.sub(rb"\g<1>" + value, event) for event in events])
        await exchange.end()

    return fault


async def unreported(exchange, events):
    await exchange.begin()
    hidden = [re.sub(rb'"(usage|usageMetadata)":', rb'"nothing":', event) for event in events]
    exchange.send_all(hidden)
    await exchange.end()


def sent(provider: ProviderServer) -> list[int]:
    """About how many tokens each request had, by its size."""
    return [len(msgspec.json.encode(asked.body)) // 4 for asked in provider.asked]


@pytest.mark.rule("usage.estimate")
@pytest.mark.parametrize("fault", [unreported, reporting(b"-500"), reporting(b"1" + b"0" * 30), reporting(b"50")])
def test_a_cap_holds_whatever_the_provider_reports(house: House, fault):
    for number in range(60):
        (house.workspace / f"{number}.txt").write_text("some words in a line of text\n" * 700)
    work = [turn("More.", call("Read", path=f"{number}.txt"), faults=("odd",)) for number in range(60)]
    with ProviderServer(*work, faults={"odd": fault}, strict=False) as provider:
        house.use(provider)
        outcome = house.one(Task(label="a", prompt="Look.", budget=Budget(tokens=CAP), max_output_tokens=500))
    assert isinstance(outcome, Partial)
    assert outcome.errors[0].type == "budget"
    assert sum(sent(provider)) <= CAP + max(sent(provider))
    assert sum(sent(provider)) > CAP / 3
    assert outcome.usage.estimated
    assert CAP / 3 < outcome.usage.input + outcome.usage.output <= CAP


@pytest.mark.rule("usage.estimate")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("value", [b"-5", b"0", b"1" + b"0" * 30, b"7.5", b'"many"', b"NaN", b"null"])
def test_a_report_that_is_no_number_of_tokens_is_estimated(house: House, model: str, value: bytes):
    with ProviderServer(turn("Done.", faults=("odd",)), faults={"odd": reporting(value)}, strict=False) as provider:
        house.use(provider, model)
        outcome = house.one(Task(label="a", prompt="Look."))
    assert isinstance(outcome, Completed)
    (size,) = sent(provider)
    assert outcome.usage.estimated
    assert size / 3 < outcome.usage.input < size * 3
    assert 0 < outcome.usage.output < 10
    assert outcome.usage.requests == 1


@pytest.mark.rule("usage.estimate")
@pytest.mark.parametrize("model", MODELS)
def test_a_plausible_report_is_charged_as_it_is(house: House, model: str):
    with ProviderServer(turn("Done.", usage=TokenUsage(input_tokens=1500, output_tokens=7))) as provider:
        house.use(provider, model)
        outcome = house.one(Task(label="a", prompt="Look."))
    assert (outcome.usage.input, outcome.usage.output, outcome.usage.estimated) == (1500, 7, False)


def unreported_model() -> Any:
    """A pydantic-ai model that answers, and reports no usage."""
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import RequestUsage

    from deputy.models.pydantic_ai import PydanticAIModel

    class UnreportedModel(FunctionModel):
        def __init__(self):
            async def answer(_messages, _info):
                yield "Done."

            super().__init__(stream_function=answer)

        @asynccontextmanager
        async def request_stream(self, *arguments, **options):
            async with super().request_stream(*arguments, **options) as response:
                reported = response.get
                response.get = lambda: replace(reported(), usage=RequestUsage(), finish_reason="stop")
                yield response

    return PydanticAIModel(UnreportedModel())


@pytest.mark.rule("usage.estimate")
def test_a_pydantic_ai_model_that_reports_no_usage_is_charged_our_estimate(house: House):
    model = unreported_model()
    house.model = model.name
    house.given[model.name] = model
    outcome = house.one(Task(label="a", prompt="Look."))
    assert isinstance(outcome, Completed)
    assert outcome.usage.estimated
    assert (outcome.usage.input > 0, outcome.usage.requests) == (True, 1)
    assert 0 < outcome.usage.output < 10


def test_hidden_thinking_is_plausible_up_to_what_the_request_allowed():
    def plausible(**report) -> bool:
        return is_plausible(TokenUsage(**report), sent_tokens=900, received_tokens=100, most_output=8000)

    assert plausible(input_tokens=900, output_tokens=7100, thinking_tokens=7000)
    assert not plausible(input_tokens=900, output_tokens=7100)
    assert not plausible(input_tokens=900, output_tokens=10**9, thinking_tokens=10**9)


@pytest.mark.parametrize(
    ("report", "expected"),
    [((334, 0), True), ((333, 0), False), ((3000, 0), True), ((3001, 0), False), ((0, 100), False), ((900, 0), True)],
)
def test_a_report_is_plausible_within_a_factor_of_three(report: tuple[int, int], expected: bool):
    used = TokenUsage(input_tokens=report[0], output_tokens=report[1])
    assert is_plausible(used, sent_tokens=900, received_tokens=100, most_output=None) is expected


def test_more_from_the_cache_than_was_sent_is_not_plausible():
    used = TokenUsage(input_tokens=1000, cached_tokens=2000)
    assert not is_plausible(used, sent_tokens=900, received_tokens=100, most_output=None)
