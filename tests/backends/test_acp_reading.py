import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputy.backends.acp import wire
from deputy.backends.acp.permission import answer_of
from deputy.backends.acp.updates import Calls, take_call, take_end, take_update
from deputy.backends.cli.program import Order
from deputy.backends.told import Told
from deputy.core.request import Grant
from deputy.engine.ports.backend import Assignment
from deputy.testing.backend_suite import WRITING

NAMES = """jsonrpc id method params result error code message data session/update sessionUpdate content text type diff
path locations kind status toolCallId rawInput rawOutput used size cost amount currency usage inputTokens outputTokens
totalTokens cachedReadTokens _meta quota token_count claudeCode options optionId stopReason"""
KINDS = "agent_message_chunk tool_call usage_update edit read execute other completed failed USD allow_once end_turn"
WORDS = st.sampled_from(f"{NAMES} {KINDS}".split())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=6),
    max_leaves=15,
)
FIELDS = st.dictionaries(WORDS, VALUES, max_size=8)
ORDER = Order(
    assignment=Assignment(session_id="s", prompt="p", workspace="/w", grant=Grant(tools=WRITING)),
    model="m",
    environ={},
    place="/w",
)


@settings(max_examples=300, deadline=None)
@given(FIELDS)
def test_no_message_breaks_whoever_reads_it(fields):
    line = msgspec.json.encode(fields)
    message = wire.read(line)
    assert message is None or isinstance(message, wire.Message)
    told, calls = Told(lambda _: None, lambda: 0.0), Calls()
    for kind in ("agent_message_chunk", "tool_call", "tool_call_update", "usage_update"):
        take_update({**msgspec.json.decode(line), "sessionUpdate": kind}, told, ORDER, calls)
    take_call(msgspec.json.decode(line), told, ORDER, calls)
    take_end(msgspec.json.decode(line), told, "an agent")
    assert told.is_over
    assert told.usage.input >= 0
    outcome = answer_of(wire.Asked("session/request_permission", msgspec.json.decode(line), 1), allowed=True)
    assert outcome["outcome"]["outcome"] in ("selected", "cancelled")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_break_it_either(data):
    for line in (data, b"{" + data, b'{"method":"x","params":' + data):
        assert wire.read(line) is None


@pytest.mark.parametrize(
    ("usage", "given"),
    [
        ({"totalTokens": 130, "inputTokens": 100, "outputTokens": 20, "cachedReadTokens": 10}, 110),
        ({"totalTokens": 120, "inputTokens": 100, "outputTokens": 20, "cachedReadTokens": 10}, 100),
        ({"inputTokens": 100, "outputTokens": 20}, 100),
    ],
)
def test_what_was_cached_is_counted_once(usage, given):
    told = Told(lambda _: None, lambda: 0.0)
    take_end({"stopReason": "end_turn", "usage": usage}, told, "an agent")
    assert (told.usage.input, told.usage.output) == (given, 20)


def test_texts_that_are_no_text_can_be_sent():
    assert b"?" in wire.request(1, "session/prompt", {"prompt": [{"type": "text", "text": "a\ud800b"}]})


def test_a_notice_of_copilot_is_no_answer_and_what_qwen_counts_beside_its_words_is_counted():
    events = []
    told = Told(events.append, lambda: 0.0)

    def say(text, **more):
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}, **more}
        take_update(update, told, ORDER, Calls(), notice="Info: ")

    say("Info: Disabled tools: bash")
    say("Info: Request failed due to a transient API error. Retrying...")
    say("Well.")
    say("", _meta={"usage": {"inputTokens": 100, "outputTokens": 20, "cachedReadTokens": 10}})
    take_end({"stopReason": "end_turn"}, told, "qwen")
    assert told.text == "Well."
    assert (told.usage.input, told.usage.output, told.usage.cached, told.usage.requests) == (100, 20, 10, 1)
    assert [type(event).__name__ for event in events] == ["Retried", "TextDelta", "Used"]
