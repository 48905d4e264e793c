"""Conformance suite of models: checks for any Model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING, Final, TypeAlias

from deputy.core.conversation import (
    AssistantMessage,
    Conversation,
    GenerationSettings,
    Message,
    Stop,
    StreamEvent,
    Text,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolCall,
    ToolMessage,
    ToolResult,
    Toolset,
    ToolSpec,
    UserMessage,
)
from deputy.core.model_errors import ModelError, RateLimited
from deputy.core.model_script import ModelScript, ScriptedCall, ScriptedTurn, script_of
from deputy.engine.ports import Model

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

OpenModel: TypeAlias = Callable[[ModelScript], AbstractAsyncContextManager[Model]]
"""Opens the model under test with a script; leaving checks that the script was played."""
ModelCheck: TypeAlias = Callable[[OpenModel], Awaitable[None]]

READ: Final = ToolSpec(
    name="Read",
    description="Read a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def expect(claim: bool, message: str) -> None:
    """Fail unless the claim holds."""
    if not claim:
        raise AssertionError(message)


def asking(text: str = "Look around.", system: str = "You are a careful reader.") -> Conversation:
    """A new conversation."""
    return Conversation(system, [UserMessage(text=text)])


def ask(
    model: Model, conversation: Conversation, settings: GenerationSettings | None = None
) -> AsyncGenerator[StreamEvent, None]:
    """The next turn, with one tool."""
    return model.stream(conversation, Toolset([READ]), settings or GenerationSettings(max_output_tokens=4096))


async def heard(
    model: Model, conversation: Conversation, settings: GenerationSettings | None = None
) -> tuple[list[StreamEvent], Stop]:
    """All events of the next turn; the last must be its only Stop."""
    events = [event async for event in ask(model, conversation, settings)]
    stops = [event for event in events if isinstance(event, Stop)]
    expect(len(stops) == 1 and events[-1] is stops[0], f"a turn ends with its one Stop, not {events}")
    return events, stops[0]


async def check_text(open_model: OpenModel) -> None:
    """The deltas add up to the message, for any characters."""
    text = 'Grüße, 世界 — 👩‍👩‍👧 \u2028 <tag> \\ "quoted" & done.\n\n\tEnd'
    async with open_model(script_of(ScriptedTurn(text=text))) as model:
        events, stop = await heard(model, asking())
    expect("".join(e.text for e in events if isinstance(e, TextDelta)) == text, "the deltas are not the text")
    expect(stop.message.text == text and stop.reason == "end", f"the message is not the text: {stop}")


async def check_calls(open_model: OpenModel) -> None:
    """Calls come whole, in order, after the text and before the end; results are accepted."""
    calls = tuple(ScriptedCall(name="Read", arguments={"path": f"ä/{n}.txt", "deep": [{"n": n}]}) for n in range(3))
    async with open_model(script_of(ScriptedTurn(text="Reading.", calls=calls), ScriptedTurn(text="Read."))) as model:
        conversation = asking()
        events, stop = await heard(model, conversation)
        text = [event for event in events if isinstance(event, ToolCall)]
        expect([c.arguments for c in text] == [c.arguments for c in calls], f"not the calls that were made: {text}")
        expect(len({call.id for call in text}) == 3, "calls share an id")
        expect(stop.message.calls == tuple(text), "the message's calls are not those of the stream")
        conversation.append(stop.message)
        results = [ToolResult(call_id=c.id, name=c.name, content="…", is_error=n == 1) for n, c in enumerate(text)]
        conversation.append(ToolMessage(results=tuple(results)))
        _, stop = await heard(model, conversation)
        expect(stop.message.text == "Read.", f"not the second turn: {stop}")


async def check_usage(open_model: OpenModel) -> None:
    """Usage is reported once."""
    usage = TokenUsage(input_tokens=1200, output_tokens=340, cached_tokens=1000)
    async with open_model(script_of(ScriptedTurn(text="Yes.", usage=usage))) as model:
        events, _ = await heard(model, asking())
    text = [event for event in events if isinstance(event, TokenUsage)]
    expect(len(text) == 1, f"usage is reported once, not {len(text)} times")
    numbers = (text[0].input_tokens, text[0].output_tokens, text[0].cached_tokens)
    expect(numbers == (1200, 340, 1000), f"not the usage: {text[0]}")


async def check_length(open_model: OpenModel) -> None:
    """An answer cut at the output limit has stop reason `length`."""
    async with open_model(script_of(ScriptedTurn(text="And then", stop="length"))) as model:
        _, stop = await heard(model, asking())
    expect(stop.reason == "length", f"not cut: {stop}")


async def check_thinking(open_model: OpenModel) -> None:
    """Thinking is separate from text, and may stay in the conversation."""
    turns = (
        ScriptedTurn(thinking="Hm, let me see.", text="So.", calls=(ScriptedCall(name="Read"),)),
        ScriptedTurn(text="Done."),
    )
    async with open_model(script_of(*turns)) as model:
        conversation = asking()
        events, stop = await heard(model, conversation, GenerationSettings(thinking="medium", max_output_tokens=4096))
        thought = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
        expect(thought == "Hm, let me see.", f"not the thought: {thought!r}")
        expect(stop.message.text == "So.", f"thought and text are mixed: {stop}")
        conversation.append(stop.message)
        call = stop.message.calls[0]
        conversation.append(ToolMessage(results=(ToolResult(call_id=call.id, name=call.name, content="x"),)))
        await heard(model, conversation)


async def check_failure(open_model: OpenModel) -> None:
    """A failure is a typed error, and the next turn works."""
    async with open_model(script_of(ScriptedTurn(text="Here.", faults=("rate_limited",)))) as model:
        conversation = asking()
        try:
            await heard(model, conversation)
        except RateLimited as error:
            expect(
                error.retryable and error.model == model.name, f"not retryable, or without the model's name: {error!r}"
            )
        else:
            raise AssertionError("a throttled request must fail")
        _, stop = await heard(model, conversation)
        expect(stop.message.text == "Here.", f"not the answer: {stop}")


async def check_over_asked(open_model: OpenModel) -> None:
    """A request beyond the script is an error."""
    failed = False
    try:
        async with open_model(script_of(ScriptedTurn(text="Once."))) as model:
            await heard(model, asking())
            try:
                await heard(model, asking())
            except ModelError as error:
                failed = not error.retryable
    except AssertionError:
        failed = failed and True
    expect(failed, "a script asked too often must fail for good")


async def check_leaving(open_model: OpenModel) -> None:
    """Closing a stream in the middle leaves the model usable."""
    turn = ScriptedTurn(text="one two three four five six seven", pace_seconds=0.001)
    async with open_model(script_of(turn, turn)) as model:
        conversation = asking()
        async with aclosing(ask(model, conversation)) as events:
            async for _ in events:
                break
        expect(len(conversation) == 1, "a model must not touch the conversation")
        async with aclosing(ask(model, Conversation("", [*conversation.messages, _answer("half")]))) as events:
            expect([event async for event in events][-1].__class__ is Stop, "the next turn must be whole")


def _answer(text: str) -> Message:
    return AssistantMessage(parts=(Text(text=text),))


CHECKS: Final[tuple[ModelCheck, ...]] = (
    check_text,
    check_calls,
    check_usage,
    check_length,
    check_thinking,
    check_failure,
    check_over_asked,
    check_leaving,
)
"""The checks that every Model must pass."""
