"""Messages of every form are read, and what is no message is shown as its text."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, json
from tests.support.every_case import every_case

from deputy.core.messages import Message, MessageCall, messages_in

CALL = {"type": "tool_call", "id": "c1", "name": "Read", "arguments": {"path": "a"}}


@every_case(
    ("value", "expected"),
    [
        ({"role": "user", "text": "hi"}, Message(role="user", content="hi")),
        ({"role": "assistant", "content": "hi"}, Message(role="assistant", content="hi")),
        ("just text", Message(role="assistant", content="just text")),
        ([1, 2], Message(role="assistant", content="[1,2]")),
        (
            {"role": "assistant", "parts": [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "yes"}, CALL]},
            Message(
                role="assistant",
                content="yes",
                tool_calls=(MessageCall(id="c1", name="Read", arguments={"path": "a"}),),
            ),
        ),
        (
            {"role": "tool", "tool_call_id": "c1", "content": "out"},
            Message(role="tool", content="out", tool_call_id="c1"),
        ),
        ({"role": "system", "content": {"a": 1}}, Message(role="user", content='{"a":1}')),
    ],
)
def test_a_message_is_read_in_the_form_it_has(value: object, expected: Message) -> None:
    assert messages_in(Raw(json.encode(value)), "assistant") == (expected,)


def test_the_results_of_one_turn_are_one_message_each() -> None:
    raw = Raw(
        json.encode({"role": "tool", "results": [{"call_id": "a", "content": "1"}, {"call_id": "b", "content": "2"}]})
    )
    assert [(one.tool_call_id, one.content) for one in messages_in(raw, "tool")] == [("a", "1"), ("b", "2")]


def test_what_is_no_json_is_shown_as_it_is() -> None:
    assert messages_in(Raw(b'"\xff"'), "user") == (Message(role="user", content='"\ufffd"'),)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "text", "parts", "results", "tool_calls", "name", "arguments", "type"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_no_json_at_all_is_too_strange(value: object) -> None:
    for message in messages_in(Raw(json.encode(value)), "tool", "c"):
        assert message.role in ("user", "assistant", "tool")
