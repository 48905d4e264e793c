"""Readers alone: a recorded stream reads the same however it is cut, and what a model may send never crashes them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputy.core.conversation import Thinking
from deputy.core.model_errors import ModelError
from deputy.models.factory import wire_of
from deputy.models.sse import EventReader

STREAMS = Path(__file__).parent / "streams"
PROTOCOLS = ("anthropic", "openai-responses", "openai-chat", "google")


def read(protocol, chunks):
    reader, events, output = wire_of(protocol).reader(), EventReader(), []
    for chunk in chunks:
        for data in events.feed(chunk):
            reader.read(data)
        output += reader.buffer.take()
    for data in events.close():
        reader.read(data)
    return reader.end(), reader.used, "".join(f"{type(delta).__name__[0]}{delta.text}" for delta in output)


def cut(data, sizes):
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size
    yield data[at:]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(st.lists(st.integers(1, 300), max_size=60), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_recorded_stream_reads_the_same_however_it_is_cut(protocol, sizes, line_end):
    recorded = (STREAMS / f"{protocol}.sse").read_bytes()
    ending, usage, _ = read(protocol, [recorded])
    again, usage_again, _ = read(protocol, cut(recorded.replace(b"\n", line_end), sizes))
    assert (again, usage_again) == (ending, usage)


FIELDS = st.sampled_from(
    [
        "type",
        "index",
        "delta",
        "content_block",
        "message",
        "usage",
        "choices",
        "candidates",
        "item",
        "response",
        "error",
    ]
)
TYPES = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "message_stop",
        "response.completed",
        "tool_use",
        "x",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | TYPES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(st.lists(JSON | st.binary(max_size=20), max_size=6))
def test_whatever_comes_ends_typed(protocol, values):
    import msgspec

    reader = wire_of(protocol).reader()
    try:
        for value in values:
            reader.read(value if isinstance(value, bytes) else msgspec.json.encode(value))
        reader.end()
    except ModelError:
        pass


def test_sealed_thinking_is_kept_as_it_came():
    parts = {name: read(name, [(STREAMS / f"{name}.sse").read_bytes()])[0].parts for name in PROTOCOLS}
    sealed = [part.opaque for part in parts["anthropic"] if isinstance(part, Thinking)]
    assert sealed == [
        '{"type":"thinking","thinking":"Let me look — schön 思考.","signature":"EqMBCkYIBRgC+/KkABBB=="}',
        '{"type":"redacted_thinking","data":"Ei4KJAgBEAEYASog"}',
    ]
    assert '"encrypted_content":"gAAAAABo+/=="' in parts["openai-responses"][0].opaque
    assert [part.opaque for part in parts["google"]] == [None, None, "CikBVKhc7ZMH", None, "EsQKCsEKAXLI2nw"]


def test_an_items_own_form_goes_back_to_where_it_came_from():
    import msgspec

    from deputy.core.conversation import AssistantMessage, Conversation, GenerationSettings, Toolset, UserMessage
    from deputy.models.wire import ModelTarget

    recorded = (STREAMS / "openai-responses.sse").read_bytes()
    parts = read("openai-responses", [recorded])[0].parts
    conversation = Conversation("", [UserMessage(text="hi"), AssistantMessage(parts=parts, origin="openai")])
    for provider, kinds in (
        ("openai", [None, "reasoning", "message", "function_call", "function_call"]),
        ("elsewhere", [None, None, "function_call", "function_call"]),
    ):
        target = ModelTarget(provider=provider, model="m")
        body = wire_of("openai-responses").body(target, conversation, Toolset(), GenerationSettings())
        items = msgspec.json.decode(body)["input"]
        assert [item.get("type") for item in items] == kinds
        assert ("rs_1" in str(items)) is (provider == "openai")


def test_what_is_reported_at_once_is_joined_and_kept_in_order():
    _, _, output = read("anthropic", [(STREAMS / "anthropic.sse").read_bytes()])
    assert output == "TLet me look — schön 思考.TI'll read both 文件 👩‍👩‍👧."


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        ([{"id": "a", "function": {"name": "R", "arguments": '{"x":1}'}}], [("a", "R", {"x": 1})]),
        (
            [
                {"id": "a", "function": {"name": "R", "arguments": '{"x":'}},
                {"function": {"arguments": "1}"}},
                {"id": "b", "function": {"name": "S", "arguments": {"y": 2}}},
            ],
            [("a", "R", {"x": 1}), ("b", "S", {"y": 2})],
        ),
        ([{"index": 0, "id": "a", "function": {"name": "R", "arguments": ""}}], [("a", "R", {})]),
        (
            [
                {"index": 0, "id": "a", "function": {"name": "R", "arguments": "{}"}},
                {"index": 0, "id": "b", "function": {"name": "R", "arguments": '{"y":2}'}},
            ],
            [("a", "R", {}), ("b", "R", {"y": 2})],
        ),
        (
            [
                {"index": 0, "id": "a", "function": {"name": "R", "arguments": '{"x":'}},
                {"index": 0, "id": "a", "function": {"name": "R", "arguments": "1"}},
                {"index": 0, "function": {"name": "R", "arguments": "}"}},
            ],
            [("a", "R", {"x": 1})],
        ),
    ],
)
def test_servers_that_leave_out_the_index_of_a_call_are_understood(deltas, calls):
    import msgspec

    reader = wire_of("openai-chat").reader()
    for delta in deltas:
        reader.read(msgspec.json.encode({"choices": [{"delta": {"tool_calls": [delta]}}]}))
    reader.read(b'{"choices":[{"delta":{},"finish_reason":"stop"}]}')
    assert [(call.id, call.name, call.arguments) for call in reader.end().parts] == calls


def test_content_in_pieces_is_understood():
    reader = wire_of("openai-chat").reader()
    reader.read(
        b'{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm."}]},'
        b'{"type":"text","text":"So."}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"cost":0.0021}}'
    )
    assert [(type(part).__name__, part.text) for part in reader.end().parts] == [("Thinking", "Hm."), ("Text", "So.")]
    assert reader.used.cost == 0.0021
