"""Messages and events are values: they survive JSON, add up, and are encoded once."""

import msgspec
import pytest
from msgspec import ValidationError
from tests.support.every_case import every_case

from deputy.core.conversation import (
    AssistantMessage,
    Conversation,
    Message,
    RetryNotice,
    Stop,
    StreamEvent,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    TokenUsage,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)

ANSWER = AssistantMessage(
    origin="anthropic",
    parts=(
        Thinking(text="Hm.", opaque='{"signature":"x"}'),
        Text(text="Here "),
        ToolCall(id="1", name="Read", arguments={"path": "a"}),
        Text(text="you are."),
        ToolCall(id="2", name="Read", arguments={}, malformed="{oops"),
    ),
)
MESSAGES = [
    UserMessage(text="hi"),
    ANSWER,
    ToolMessage(results=(ToolResult(call_id="1", name="Read", content="x", is_error=True),)),
]
EVENTS = [
    TextDelta("a"),
    ThinkingDelta("b"),
    ANSWER.calls[0],
    TokenUsage(input_tokens=3, cost=7),
    RetryNotice(attempt=1, seconds=0.5, code="SILENT", message="…"),
    Stop(reason="length", message=ANSWER),
]


def test_an_answer_knows_its_text_and_its_calls():
    assert ANSWER.text == "Here you are."
    assert [call.id for call in ANSWER.calls] == ["1", "2"]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_survive_json(message):
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


@every_case("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_survive_json(event):
    assert msgspec.json.decode(msgspec.json.encode(event), type=StreamEvent) == event


def test_an_unknown_message_is_refused():
    with pytest.raises(ValidationError):
        msgspec.json.decode(b'{"role":"system","text":"x"}', type=Message)


def test_items_are_encoded_once_for_each_key_and_joined():
    made = []

    def encode(prefix):
        def encode_one(message):
            made.append((prefix, message.text))
            return f"{prefix}{message.text}".encode() if message.text else b""

        return encode_one

    conversation = Conversation("system", [UserMessage(text="1"), UserMessage(text="")])
    assert conversation.encoded("a", encode("a")) == b"a1"
    conversation.append(UserMessage(text="2"))
    assert conversation.encoded("a", encode("a")) == b"a1,a2"
    assert conversation.encoded("b", encode("b")) == b"b1,b2"
    assert made == [("a", "1"), ("a", ""), ("a", "2"), ("b", "1"), ("b", ""), ("b", "2")]
    assert len(conversation) == len(conversation.messages) == 3
