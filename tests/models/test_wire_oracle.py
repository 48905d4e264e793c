"""The official SDKs as oracle: the same conversation makes the same request, the same stream reads the same."""

import json
from pathlib import Path

import pytest

from deputy.core.conversation import (
    AssistantMessage,
    Conversation,
    ForcedTool,
    GenerationSettings,
    OutputSchema,
    Stop,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    TokenUsage,
    ToolCall,
    ToolMessage,
    ToolResult,
    Toolset,
    ToolSpec,
    UserMessage,
)
from deputy.models.catalog import read_catalog
from deputy.models.factory import OPENAI_QUIRKS, ModelFactory
from deputy.testing import ProviderServer, ScriptedTurn
from deputy.testing.faults import mangles

# How google-genai makes its own aiohttp session is its business.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

# Two of the SDKs are imported where they are used: each takes seconds, and only one worker of several needs them.
STREAMS = Path(__file__).parent / "streams"
SYSTEM = "You are careful — vraiment."
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
ANSWER = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
TOOLS = Toolset([ToolSpec(name="Read", description="Read a file.", parameters=SCHEMA)])
NAMES = {
    "anthropic": "anthropic:claude-haiku-4-5",
    "openai-responses": "openai:gpt-5.2",
    "openai-chat": "own:gpt-5.2",
    "google": "google:gemini-3.1-pro-preview",
}
SEALED = {
    "anthropic": '{"type":"thinking","thinking":"Hm.","signature":"c2ln"}',
    "openai-responses": '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}',
    "openai-chat": None,
    "google": None,
}


def conversation(protocol):
    origin = NAMES[protocol].partition(":")[0]
    signature = "c2ln" if protocol == "google" else None
    return Conversation(
        SYSTEM,
        [
            UserMessage(text="Read both."),
            AssistantMessage(
                origin=origin,
                parts=(
                    Thinking(text="Hm.", opaque=SEALED[protocol]),
                    Text(text="Reading."),
                    ToolCall(id="call_A", name="Read", arguments={"path": "ä"}, opaque=signature),
                    ToolCall(id="call_B", name="Read", arguments={"path": "b"}),
                ),
            ),
            ToolMessage(
                results=(
                    ToolResult(call_id="call_A", name="Read", content="text of ä"),
                    ToolResult(call_id="call_B", name="Read", content="no such file", is_error=True),
                )
            ),
            UserMessage(text="Go on."),
        ],
    )


def settings(*, thinking=False):
    if thinking:
        return GenerationSettings(max_output_tokens=4096, thinking="high", tool_choice="auto")
    return GenerationSettings(
        max_output_tokens=4096, tool_choice=ForcedTool(name="Read"), output=OutputSchema(name="answer", schema=ANSWER)
    )


# --- the same conversation in each SDK's own words ---


async def ask_anthropic(url, *, thinking):
    from anthropic import AsyncAnthropic

    cached = {"type": "ephemeral"}
    more = (
        {"thinking": {"type": "enabled", "budget_tokens": 3072}, "tool_choice": {"type": "auto"}}
        if thinking
        else {
            "tool_choice": {"type": "tool", "name": "Read"},
            "output_config": {"format": {"type": "json_schema", "schema": ANSWER}},
        }
    )
    async with (
        AsyncAnthropic(api_key="k", base_url=url, max_retries=0) as client,
        client.messages.stream(
            model="claude-haiku-4-5",
            max_tokens=4096,
            cache_control=cached,
            system=[{"type": "text", "text": SYSTEM, "cache_control": cached}],
            tools=[{"name": "Read", "description": "Read a file.", "input_schema": SCHEMA}],
            messages=[
                {"role": "user", "content": [{"type": "text", "text": "Read both."}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                        {"type": "text", "text": "Reading."},
                        {"type": "tool_use", "id": "call_A", "name": "Read", "input": {"path": "ä"}},
                        {"type": "tool_use", "id": "call_B", "name": "Read", "input": {"path": "b"}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "call_A", "content": "text of ä"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "call_B",
                            "content": "no such file",
                            "is_error": True,
                        },
                    ],
                },
                {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
            ],
            **more,
        ) as stream,
    ):
        message = await stream.get_final_message()
    usage = message.usage
    return {
        "text": "".join(block.text for block in message.content if block.type == "text"),
        "thinking": "".join(block.thinking for block in message.content if block.type == "thinking"),
        "calls": [(b.id, b.name, b.input) for b in message.content if b.type == "tool_use"],
        "input": usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens,
        "output": usage.output_tokens,
        "cached": usage.cache_read_input_tokens,
        "cut": message.stop_reason == "max_tokens",
    }


async def ask_responses(url, *, thinking):
    from openai import AsyncOpenAI

    more = (
        {"reasoning": {"effort": "high"}, "tool_choice": "auto"}
        if thinking
        else {
            "tool_choice": {"type": "function", "name": "Read"},
            "text": {"format": {"type": "json_schema", "name": "answer", "schema": ANSWER, "strict": False}},
        }
    )
    async with (
        AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client,
        client.responses.stream(
            model="gpt-5.2",
            instructions=SYSTEM,
            max_output_tokens=4096,
            store=False,
            include=["reasoning.encrypted_content"],
            tools=[
                {
                    "type": "function",
                    "name": "Read",
                    "description": "Read a file.",
                    "parameters": SCHEMA,
                    "strict": False,
                }
            ],
            input=[
                {"role": "user", "content": "Read both."},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
                {"role": "assistant", "content": "Reading."},
                {"type": "function_call", "call_id": "call_A", "name": "Read", "arguments": '{"path":"ä"}'},
                {"type": "function_call", "call_id": "call_B", "name": "Read", "arguments": '{"path":"b"}'},
                {"type": "function_call_output", "call_id": "call_A", "output": "text of ä"},
                {"type": "function_call_output", "call_id": "call_B", "output": "Error: no such file"},
                {"role": "user", "content": "Go on."},
            ],
            **more,
        ) as stream,
    ):
        response = await stream.get_final_response()
    return {
        "text": response.output_text,
        "thinking": "".join(p.text for item in response.output if item.type == "reasoning" for p in item.summary),
        "calls": [
            (item.call_id, item.name, json.loads(item.arguments))
            for item in response.output
            if item.type == "function_call"
        ],
        "input": response.usage.input_tokens,
        "output": response.usage.output_tokens,
        "cached": response.usage.input_tokens_details.cached_tokens,
        "cut": response.status == "incomplete",
    }


async def ask_chat(url, *, thinking):
    from openai import AsyncOpenAI

    more = (
        {"tool_choice": "auto"}
        if thinking
        else {
            "tool_choice": {"type": "function", "function": {"name": "Read"}},
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": ANSWER, "strict": False},
            },
        }
    )
    call = {"type": "function"}
    async with (
        AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client,
        client.chat.completions.stream(
            model="gpt-5.2",
            max_completion_tokens=4096,
            stream_options={"include_usage": True},
            tools=[
                {"type": "function", "function": {"name": "Read", "description": "Read a file.", "parameters": SCHEMA}}
            ],
            messages=[
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": "Read both."},
                {
                    "role": "assistant",
                    "content": "Reading.",
                    "tool_calls": [
                        {"id": "call_A", "function": {"name": "Read", "arguments": '{"path":"ä"}'}, **call},
                        {"id": "call_B", "function": {"name": "Read", "arguments": '{"path":"b"}'}, **call},
                    ],
                },
                {"role": "tool", "tool_call_id": "call_A", "content": "text of ä"},
                {"role": "tool", "tool_call_id": "call_B", "content": "Error: no such file"},
                {"role": "user", "content": "Go on."},
            ],
            **more,
        ) as stream,
    ):
        completion = await stream.get_final_completion()
    choice = completion.choices[0]
    return {
        "text": choice.message.content or "",
        "thinking": "",
        "calls": [(c.id, c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls or ()],
        "input": completion.usage.prompt_tokens,
        "output": completion.usage.completion_tokens,
        "cached": completion.usage.prompt_tokens_details.cached_tokens,
        "cut": choice.finish_reason == "length",
    }


async def ask_google(url, *, thinking):
    from google import genai
    from google.genai import types as google_types

    part, content = google_types.Part, google_types.Content
    more = (
        {
            "thinking_config": google_types.ThinkingConfig(include_thoughts=True, thinking_level="HIGH"),
            "tool_config": {"function_calling_config": {"mode": "AUTO"}},
        }
        if thinking
        else {
            "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["Read"]}},
        }
    )
    client = genai.Client(api_key="k", http_options=google_types.HttpOptions(base_url=url, api_version="v1beta"))
    stream = await client.aio.models.generate_content_stream(
        model="gemini-3.1-pro-preview",
        contents=[
            content(role="user", parts=[part(text="Read both.")]),
            content(
                role="model",
                parts=[
                    part(text="Reading."),
                    part(
                        function_call=google_types.FunctionCall(id="call_A", name="Read", args={"path": "ä"}),
                        thought_signature=b"sig",
                    ),
                    part(function_call=google_types.FunctionCall(id="call_B", name="Read", args={"path": "b"})),
                ],
            ),
            content(
                role="user",
                parts=[
                    part(
                        function_response=google_types.FunctionResponse(
                            id="call_A", name="Read", response={"output": "text of ä"}
                        )
                    ),
                    part(
                        function_response=google_types.FunctionResponse(
                            id="call_B", name="Read", response={"error": "no such file"}
                        )
                    ),
                ],
            ),
            content(role="user", parts=[part(text="Go on.")]),
        ],
        config=google_types.GenerateContentConfig(
            system_instruction=SYSTEM,
            max_output_tokens=4096,
            tools=[
                google_types.Tool(
                    function_declarations=[
                        google_types.FunctionDeclaration(
                            name="Read", description="Read a file.", parameters_json_schema=SCHEMA
                        )
                    ]
                )
            ],
            **more,
        ),
    )
    chunks = [chunk async for chunk in stream]
    await client.aio.aclose()
    parts = [p for chunk in chunks for c in chunk.candidates or () for p in (c.content and c.content.parts) or ()]
    usage = chunks[-1].usage_metadata
    return {
        "text": "".join(p.text or "" for p in parts if not p.thought),
        "thinking": "".join(p.text or "" for p in parts if p.thought),
        "calls": [(p.function_call.id, p.function_call.name, p.function_call.args) for p in parts if p.function_call],
        "input": usage.prompt_token_count,
        "output": (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
        "cached": usage.cached_content_token_count or 0,
        "cut": chunks[-1].candidates[0].finish_reason.value == "MAX_TOKENS",
    }


ORACLES = {
    "anthropic": ask_anthropic,
    "openai-responses": ask_responses,
    "openai-chat": ask_chat,
    "google": ask_google,
}


async def ask_ours(provider, protocol, *, thinking):
    # OpenAI's quirks are not assumed at another address, unless a provider says so.
    keys = {"OPENAI_API_KEY": "authorization"}
    own = {"protocol": "openai-chat", "base_url": f"{provider.url}/v1", "keys": keys, "quirks": sorted(OPENAI_QUIRKS)}
    catalog = read_catalog({"providers": {"own": own}})
    async with ModelFactory(environ=provider.environ, catalog=catalog) as models:
        model = models.open(NAMES[protocol])
        events = [e async for e in model.stream(conversation(protocol), TOOLS, settings(thinking=thinking))]
    stop = next(event for event in events if isinstance(event, Stop))
    usage = next(event for event in events if isinstance(event, TokenUsage))
    assert stop.message.text == "".join(event.text for event in events if isinstance(event, TextDelta))
    return {
        "text": stop.message.text,
        "thinking": "".join(event.text for event in events if isinstance(event, ThinkingDelta)),
        "calls": [(call.id, call.name, call.arguments) for call in stop.message.calls],
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cached": usage.cached_tokens,
        "cut": stop.reason == "length",
    }


def as_google_names_it(kind, fields):
    """Fields of one of Google's types under their names in JSON, which its SDK knows but does not always use.

    Its SDK sends a tool and a thinking setting as the caller's own names for fields have them, in snake case. That is
    the same field: JSON for protocol buffers is read under both names, and written under the one in camel case, which
    is also the one of the API's reference. The SDK's types hold it as each field's alias.
    """
    return {
        name if name not in kind.model_fields else kind.model_fields[name].alias: value
        for name, value in fields.items()
    }


def in_one_spelling(body):
    """A request of Google's SDK with the two types spelled as in JSON; nothing else in it is touched."""
    from google.genai import types as google_types

    tools, generation = body["tools"], body["generationConfig"]
    declared = [as_google_names_it(google_types.FunctionDeclaration, d) for d in tools[0]["functionDeclarations"]]
    body = {**body, "tools": [{**tools[0], "functionDeclarations": declared}, *tools[1:]]}
    if "thinkingConfig" in generation:
        thinking = as_google_names_it(google_types.ThinkingConfig, generation["thinkingConfig"])
        body["generationConfig"] = {**generation, "thinkingConfig": thinking}
    return body


@pytest.mark.parametrize("thinking", [False, True], ids=["forced", "thinking"])
@pytest.mark.parametrize("protocol", ORACLES)
async def test_the_same_conversation_makes_the_same_request(protocol, thinking):
    turn = ScriptedTurn(text="Done.", faults=("same",))
    fault = {"same": mangles(lambda events: events)}
    async with ProviderServer(turn, turn, faults=fault, strict=False) as provider:
        theirs = await ORACLES[protocol](provider.url, thinking=thinking)
        ours = await ask_ours(provider, protocol, thinking=thinking)
    their_request, our_request = provider.asked
    expected = in_one_spelling(their_request.body) if protocol == "google" else their_request.body
    assert our_request.body == expected
    assert our_request.path == their_request.path
    assert ours == theirs


LINE_ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}
KEEP_ALIVE = b": keep-alive\n\n"


def cut(stream, size):
    """A stream in pieces of a size; in one when that is 0."""
    return [stream[at : at + size] for at in range(0, len(stream), size)] if size else [stream]


def as_google_reads_it(stream):
    """A stream without what Google's SDK cannot read and the standard allows: comments, and lone returns as line ends.

    It takes every line that does not begin with `data: ` for a part of an error in JSON, and splits at line feeds only.
    """
    ends = stream if b"\n" in stream else stream.replace(b"\r", b"\n")
    for end in (b"\n", b"\r\n"):
        ends = ends.replace(KEEP_ALIVE.replace(b"\n", end), b"")
    return ends


@pytest.mark.parametrize("mangled", [lambda s: s, lambda s: s.replace(KEEP_ALIVE, b"").replace(b"\n", b"\r")])
async def test_google_s_sdk_cannot_read_comments_and_lone_returns(mangled):
    from google.genai import errors as google_errors

    stream = (STREAMS / "google.sse").read_bytes()
    assert KEEP_ALIVE in stream
    turn = ScriptedTurn(faults=("theirs",))
    fault = {"theirs": mangles(lambda _: [mangled(stream)])}
    async with ProviderServer(turn, turn, faults=fault, strict=False) as provider:
        with pytest.raises(google_errors.UnknownApiResponseError):
            await ask_google(provider.url, thinking=True)


@pytest.mark.parametrize("line_end", LINE_ENDS)
@pytest.mark.parametrize("size", [0, 7, 1000])
@pytest.mark.parametrize("protocol", ORACLES)
async def test_the_same_stream_reads_the_same(protocol, size, line_end):
    plain = (STREAMS / f"{protocol}.sse").read_bytes()
    recorded = plain.replace(b"\n", LINE_ENDS[line_end])
    readable = recorded if protocol != "google" else as_google_reads_it(recorded)
    turn = ScriptedTurn(faults=("theirs", "ours"))
    fault = {"ours": mangles(lambda _: cut(recorded, size)), "theirs": mangles(lambda _: cut(readable, size))}
    async with ProviderServer(turn, turn, faults=fault, strict=False) as provider:
        theirs = await ORACLES[protocol](provider.url, thinking=True)
        ours = await ask_ours(provider, protocol, thinking=True)
    assert ours == theirs
    assert [(name, arguments) for _, name, arguments in ours["calls"]] == [
        ("Read", {"path": "ä/b.txt", "n": [1, 2500.0, None]}),
        ("List", {}),
    ]
    assert ours["text"] == "I'll read both 文件 👩‍👩‍👧."
    assert (ours["input"], ours["output"], ours["cached"]) == (4127, 89, 4000)
