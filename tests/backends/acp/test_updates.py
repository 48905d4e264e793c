import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputy.backends.acp import jsonrpc
from deputy.backends.acp.client_requests import answer_of
from deputy.backends.acp.known_agents import CLAUDE
from deputy.backends.acp.updates import ToolCallLog, record_call, record_end, record_update
from deputy.backends.cli.program import Invocation
from deputy.backends.turn_recorder import TurnRecorder
from deputy.core.request import Grant
from deputy.engine.ports.backend import BackendRequest
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
ORDER = Invocation(
    program=CLAUDE.program,
    request=BackendRequest(session_id="s", prompt="p", workspace="/w", grant=Grant(tools=WRITING)),
    model="m",
    environ={},
    place="/w",
)


@given(FIELDS)
def test_no_message_breaks_its_reader(fields):
    line = msgspec.json.encode(fields)
    message = jsonrpc.read(line)
    assert message is None or isinstance(message, jsonrpc.Message)
    output, calls = TurnRecorder(ORDER, lambda _: None, lambda: 0.0), ToolCallLog()
    for kind in ("agent_message_chunk", "tool_call", "tool_call_update", "usage_update"):
        record_update({**msgspec.json.decode(line), "sessionUpdate": kind}, output, calls)
    record_call(msgspec.json.decode(line), output, calls)
    record_end(msgspec.json.decode(line), output)
    assert output.is_over
    assert output.usage.input >= 0
    outcome = answer_of(jsonrpc.RpcRequest("session/request_permission", msgspec.json.decode(line), 1), allowed=True)
    assert outcome["outcome"]["outcome"] in ("selected", "cancelled")


@given(st.binary(max_size=60))
def test_no_bytes_break_it_either(data):
    for line in (data, b"{" + data, b'{"method":"x","params":' + data):
        assert jsonrpc.read(line) is None


@pytest.mark.parametrize(
    ("usage", "given"),
    [
        ({"totalTokens": 130, "inputTokens": 100, "outputTokens": 20, "cachedReadTokens": 10}, 110),
        ({"totalTokens": 120, "inputTokens": 100, "outputTokens": 20, "cachedReadTokens": 10}, 100),
        ({"inputTokens": 100, "outputTokens": 20}, 100),
    ],
)
def test_what_was_cached_is_counted_once(usage, given):
    output = TurnRecorder(ORDER, lambda _: None, lambda: 0.0)
    record_end({"stopReason": "end_turn", "usage": usage}, output)
    assert (output.usage.input, output.usage.output) == (given, 20)


def test_texts_that_are_no_text_can_be_sent():
    assert b"?" in jsonrpc.request("session/prompt", {"prompt": [{"type": "text", "text": "a\ud800b"}]}, 1)


def test_a_notice_of_copilot_is_no_answer_and_what_qwen_counts_beside_its_words_is_counted():
    events = []
    output = TurnRecorder(ORDER, events.append, lambda: 0.0)

    def say(text, **more):
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}, **more}
        record_update(update, output, ToolCallLog(), notice="Info: ")

    say("Info: Disabled tools: bash")
    say("Info: Request failed due to a transient API error. Retrying...")
    say("Well.")
    say("", _meta={"usage": {"inputTokens": 100, "outputTokens": 20, "cachedReadTokens": 10}})
    record_end({"stopReason": "end_turn"}, output)
    assert output.text == "Well."
    assert (output.usage.input, output.usage.output, output.usage.cached, output.usage.requests) == (100, 20, 10, 1)
    assert [type(event).__name__ for event in events] == ["RetryNotice", "TextDelta", "TokenUsage"]
