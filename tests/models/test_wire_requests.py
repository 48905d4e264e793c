"""What a request holds, and that it costs the turn, not the conversation."""

import msgspec
import pytest

from deputy.core.conversation import (
    AssistantMessage,
    Conversation,
    GenerationSettings,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    Toolset,
    ToolSpec,
    UserMessage,
)
from deputy.models.factory import wire_of
from deputy.models.wire import ModelTarget

PROTOCOLS = ("anthropic", "openai-responses", "openai-chat", "google")
TOOL = ToolSpec(name="Read", description="Read.", parameters={"type": "object"})
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def request(protocol, conversation, tools=(), settings=None, **target):
    target = ModelTarget(**({"provider": "here", "model": "m"} | target))
    body = wire_of(protocol).body(target, conversation, Toolset(tools), settings or GenerationSettings())
    return msgspec.json.decode(body)


def rows(protocol, body):
    return body[{"openai-responses": "input", "google": "contents"}.get(protocol, "messages")]


@every_protocol
def test_each_message_is_encoded_once(protocol):
    wire, target, settings = wire_of(protocol), ModelTarget(provider="p", model="m"), GenerationSettings()
    conversation = Conversation("s")
    bodies = []
    for number in range(3):
        conversation.append(UserMessage(text=f"message {number}"))
        bodies.append(wire.body(target, conversation, Toolset(), settings))
    buffer = conversation.encoded("p", lambda _: pytest.fail("encoded again"))
    assert all(bytes(buffer) in bodies[2] for _ in bodies)
    assert bodies[2] == wire.body(target, Conversation("s", conversation.messages), Toolset(), settings)


@every_protocol
def test_another_providers_sealed_thoughts_stay_behind(protocol):
    message = AssistantMessage(
        origin="elsewhere",
        parts=(
            Thinking(text="secret thought", opaque='{"sealed":"elsewhere"}'),
            Text(text="Said.", opaque="signature-of-elsewhere"),
            ToolCall(id="x", name="Read", arguments={}, opaque="signature-of-elsewhere"),
        ),
    )
    text = str(request(protocol, Conversation("", [UserMessage(text="hi"), message])))
    assert "elsewhere" not in text
    assert "secret thought" not in text
    assert "Said." in text
    if protocol == "google":
        assert "skip_thought_signature_validator" in text


@every_protocol
def test_an_answer_with_nothing_to_send_is_left_out(protocol):
    conversation = Conversation("", [UserMessage(text="hi"), AssistantMessage(parts=()), UserMessage(text="go on")])
    # Templates of chat models refuse two user messages in a row.
    first = rows(protocol, request(protocol, conversation))
    assert len(first) == (1 if protocol == "openai-chat" else 2)
    conversation.append(UserMessage(text="now"))
    conversation.append(AssistantMessage(parts=(Text(text="Yes."),)))
    conversation.append(UserMessage(text="thanks"))
    later = rows(protocol, request(protocol, conversation))
    assert [word in str(later) for word in ("hi", "go on", "now", "Yes.", "thanks")] == [True] * 5
    assert len(later) == (3 if protocol == "openai-chat" else 5)


@every_protocol
def test_nothing_optional_is_sent_unasked(protocol):
    body = request(protocol, Conversation("", [UserMessage(text="hi")]))
    assert not {"tools", "tool_choice", "toolConfig", "thinking", "reasoning", "system", "temperature"} & set(body)


@every_protocol
def test_half_characters_are_replaced_not_fatal(protocol):
    conversation = Conversation(
        "bad \ud800 system",
        [
            UserMessage(text="half \ud83d of a smile"),
            AssistantMessage(parts=(ToolCall(id="x", name="Read", arguments={"\ud800": ["\ud801"]}),)),
            ToolMessage(results=(ToolResult(call_id="x", name="Read", content="file\udcff"),)),
        ],
    )
    assert "half ? of a smile" in str(request(protocol, conversation))


@every_protocol
def test_extra_fields_go_into_the_body(protocol):
    settings = GenerationSettings(extra={"num_ctx": 8192})
    assert request(protocol, Conversation("", [UserMessage(text="hi")]), settings=settings)["num_ctx"] == 8192


@every_protocol
def test_malformed_arguments_go_back_as_an_empty_object(protocol):
    call = ToolCall(id="x", name="Read", arguments={}, malformed="{oops")
    body = request(protocol, Conversation("", [UserMessage(text="hi"), AssistantMessage(parts=(call,))]))
    assert "oops" not in str(body)


@pytest.mark.parametrize(("limit", "budget"), [(4096, 3072), (100_000, 24576), (1400, 1050), (1300, None), (100, None)])
def test_a_thinking_budget_stays_below_the_output_limit(limit, budget):
    settings = GenerationSettings(thinking="high", max_output_tokens=limit)
    body = request("anthropic", Conversation("", [UserMessage(text="hi")]), settings=settings, thinking_style="budget")
    assert body.get("thinking") == ({"type": "enabled", "budget_tokens": budget} if budget else None)


def test_adaptive_models_get_an_effort_instead_of_a_budget():
    settings = GenerationSettings(thinking="medium")
    body = request("anthropic", Conversation("", [UserMessage(text="x")]), settings=settings, thinking_style="adaptive")
    assert body["thinking"]["type"] == "adaptive"
    assert body["output_config"] == {"effort": "medium"}


@every_protocol
def test_a_model_that_cannot_think_is_not_asked_to(protocol):
    body = request(protocol, Conversation("", [UserMessage(text="x")]), settings=GenerationSettings(thinking="high"))
    assert not {"thinking", "reasoning", "reasoning_effort", "output_config", "generationConfig"} & set(body)


@every_protocol
def test_tools_can_be_shown_and_forbidden_at_once(protocol):
    settings = GenerationSettings(tool_choice="none")
    body = request(protocol, Conversation("", [UserMessage(text="x")]), [TOOL], settings)
    assert "Read" in str(body["tools"])
    assert "none" in str(body.get("tool_choice") or body.get("toolConfig")).lower()


def test_thoughts_go_back_to_chat_servers_that_want_them():
    thought = Thinking(text="Hm.", opaque='[{"type":"reasoning.text","text":"Hm."}]')
    call = ToolCall(id="x", name="Read", arguments={})
    conversation = [UserMessage(text="x"), AssistantMessage(parts=(thought, call), origin="here")]

    def sent(*quirks):
        return request("openai-chat", Conversation("", conversation), quirks=frozenset(quirks))["messages"][1]

    assert sent("reasoning_content")["reasoning_content"] == "Hm."
    assert sent("reasoning_details")["reasoning_details"] == [{"type": "reasoning.text", "text": "Hm."}]
    assert not {"reasoning_content", "reasoning_details"} & set(sent())


def test_ids_of_calls_fit_servers_that_want_nine_characters():
    call = ToolCall(id="toolu_01ABCDEF", name="Read", arguments={})
    result = ToolResult(call_id="toolu_01ABCDEF", name="Read", content="x")
    messages = [UserMessage(text="x"), AssistantMessage(parts=(call,)), ToolMessage(results=(result,))]
    body = request("openai-chat", Conversation("", messages), quirks=frozenset({"nine_character_ids"}))
    call_id = body["messages"][1]["tool_calls"][0]["id"]
    assert len(call_id) == 9
    assert call_id.isalnum()
    assert body["messages"][2]["tool_call_id"] == call_id


def test_the_prompt_cache_is_marked_after_the_system_prompt_and_at_the_end():
    body = request("anthropic", Conversation("Be good.", [UserMessage(text="hi")]))
    assert body["cache_control"] == {"type": "ephemeral"}
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ("anthropic", {"temperature": 0.2, "top_p": 0.9}),
        ("openai-responses", {"temperature": 0.2, "top_p": 0.9}),
        ("openai-chat", {"temperature": 0.2, "top_p": 0.9, "seed": 7}),
        ("google", {"generationConfig": {"temperature": 0.2, "topP": 0.9, "seed": 7}}),
    ],
)
def test_sampling_is_sent_where_the_settings_of_the_model_name_it(protocol, expected):
    talk = Conversation("", [UserMessage(text="hi")])
    asked = request(protocol, talk, temperature=0.2, top_p=0.9, seed=7)
    assert {name: asked[name] for name in expected} == expected
    assert not {"temperature", "top_p", "seed", "generationConfig"} & request(protocol, talk).keys()
