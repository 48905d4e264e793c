import time

import pytest
from tests.support.every_case import every_case

from deputy.core.text_calls import CALLS_MAX, CHARACTERS_MAX, PROSE_MAX, TextCall, read_calls, without_thinking

KNOWN = ("Read", "Grep", "Write")
JSON = '{"name": "Read", "arguments": {"path": "a.txt"}}'

SPELLINGS = {
    "fenced json": f"```json\n{JSON}\n```",
    "bare json": '{"name": "Read", "parameters": {"path": "a.txt"}}',
    "openai": '{"tool_calls": [{"function": {"name": "Read", "arguments": "{\\"path\\": \\"a.txt\\"}"}}]}',
    "hermes": f"<tool_call>\n{JSON}\n</tool_call>",
    "hermes, not closed": f"<tool_call>\n{JSON}",
    "qwen coder": "<tool_call>\n<function=Read>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>",
    "llama": '<|python_tag|>{"name": "Read", "parameters": {"path": "a.txt"}}<|eom_id|>',
    "llama, built in": '<|python_tag|>Read.call(path="a.txt")',
    "llama, custom": '<function=Read>{"path": "a.txt"}</function>',
    "llama 4": '[Read(path="a.txt")]',
    "mistral": f"[TOOL_CALLS] [{JSON}]",
    "mistral, new": '[TOOL_CALLS]Read[CALL_ID]abc123def[ARGS]{"path": "a.txt"}</s>',
    "functionary 3": '>>>Read\n{"path": "a.txt"}',
    "functionary 2": '<|from|>assistant\n<|recipient|>Read\n<|content|>{"path": "a.txt"}',
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>Read\n"
    '```json\n{"path": "a.txt"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek 3.1": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>Read<｜tool▁sep｜>{"path": "a.txt"}<｜tool▁call▁end｜>',
    "gemma": "```tool_code\nprint(default_api.Read(path='a.txt'))\n```",
    "function gemma": "<start_function_call>call:Read{path:<escape>a.txt<escape>}<end_function_call>",
    "glm": "<tool_call>Read\n<arg_key>path</arg_key>\n<arg_value>a.txt</arg_value>\n</tool_call>",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.Read:0<|tool_call_argument_begin|>"
    '{"path": "a.txt"}<|tool_call_end|><|tool_calls_section_end|>',
    "gpt-oss": '<|channel|>commentary to=functions.Read <|constrain|>json<|message|>{"path": "a.txt"}<|call|>',
    "command r": 'Action:\n```json\n[{"tool_name": "Read", "parameters": {"path": "a.txt"}}]\n```',
    "react": 'Action: Read\nAction Input: {"path": "a.txt"}',
    "xml": '<function_calls>\n<invoke name="Read">\n<parameter name="path">a.txt</parameter>\n'
    "</invoke>\n</function_calls>",
    "nemotron": f"<TOOLCALL>[{JSON}]</TOOLCALL>",
}


@pytest.mark.rule("honest.calls")
@every_case("text", SPELLINGS.values(), ids=SPELLINGS)
def test_a_call_is_read_in_the_spellings_of_local_models(text: str):
    found = read_calls(text, KNOWN)
    assert found is not None
    assert [(call.name, call.arguments) for call in found.calls] == [("Read", {"path": "a.txt"})]
    assert found.is_alone


@every_case("text", SPELLINGS.values(), ids=SPELLINGS)
def test_a_call_with_a_sentence_before_or_after_it_is_not_alone(text: str):
    for message in (f"I read the file first.\n{text}", f"{text}\nThis is what I found."):
        found = read_calls(message, KNOWN)
        assert found is not None
        assert (len(found.calls), found.is_alone) == (1, False)


@pytest.mark.rule("honest.calls")
@every_case("text", SPELLINGS.values(), ids=SPELLINGS)
def test_a_call_in_a_longer_answer_is_a_quotation(text: str):
    assert read_calls(f"{'The file holds this call. ' * 20}\n\n{text}\n", KNOWN) is None


@every_case(
    "text",
    [
        "The limit is 3 (src/a.py:1).",
        f"The model writes `<tool_call>{JSON}</tool_call>` and stops.",
        f"The file has one line:\n> {JSON}",
        f"The file has one line:\n> <tool_call>{JSON}</tool_call>\n",
        "> <function=Read><parameter=path>a.txt</parameter></function>",
        f"- The file has one line:\n  > [TOOL_CALLS] [{JSON}]",
        "The tag <tool_call> is not closed.",
        '{"name": "Bob", "arguments": {"age": 3}}',
        '{"status": "completed", "summary": "Read it."}',
        "It calls Read(path='a.txt') in a loop.",
        "Use it so:\n\n>>> Read\n{}",
        "x" * (CHARACTERS_MAX + 1) + JSON,
        "",
    ],
)
def test_an_answer_is_no_call(text: str):
    assert read_calls(text, KNOWN) is None


def test_several_calls_are_all_found_and_a_marked_call_may_have_any_name():
    found = read_calls('<tool_call>{"name": "search", "arguments": {}}</tool_call>\n' + JSON, KNOWN)
    assert found is not None
    assert [call.name for call in found.calls] == ["search", "Read"]


def test_a_message_of_very_many_calls_is_no_answer():
    found = read_calls(SPELLINGS["hermes"] * 100, KNOWN)
    assert found is not None
    assert len(found.calls) == CALLS_MAX + 1


def test_a_marked_call_that_cannot_be_read_is_still_a_call():
    found = read_calls('<tool_call>{"name": "Read", "arguments": {"path": }</tool_call>', KNOWN)
    assert found is not None
    assert found.calls == ()


def test_values_between_tags_keep_their_lines_and_are_text():
    text = "<function=Write><parameter=content>\nif x:\n    y\n</parameter><parameter=n>3</parameter></function>"
    found = read_calls(text, KNOWN)
    assert found is not None
    assert found.calls == (TextCall(name="Write", arguments={"content": "if x:\n    y", "n": "3"}, is_untyped=True),)


@every_case(
    "text",
    [
        "{\n" * 30_000,
        "[" * 60_000,
        '{"a":' * 12_000,
        "<tool_call>" * 5_000,
        "<tool_call>a{" * 4_000,
        "<function=x>" + "<parameter=a>" * 4_000,
        "[TOOL_CALLS]" + "a[CALL_ID]" * 6_000,
        "Read(a='" + "\\" * 60_000,
        "Read(a=1," * 7_000,
        '<tool_call>{"name": "Read", "arguments": {"path": "\\ud800"}}</tool_call>',
        '<tool_call>{"name": "Read", "arguments": {"n": ' + "9" * 5000 + "}}</tool_call>",
    ],
)
def test_a_hostile_text_is_no_call_that_can_be_executed(text: str):
    found = read_calls(text, KNOWN)
    assert found is None or all(not call.arguments.keys() - {"a"} for call in found.calls)


@pytest.mark.rule("honest.calls")
@every_case(
    ("text", "kept"),
    [
        ("<think>The plan.</think>\n\nThe report.", "The report."),
        ("<think>\n```\nnot closed\n</think>The report.", "The report."),
        ("The plan.\n</think>\n\nThe report.", "The report."),
        ("<thinking>one</thinking>A <THINK>two</THINK>B", "A B"),
        ("<think>The plan, and no end", ""),
        ("The tag `<think>` opens, `</think>` closes.", "The tag `<think>` opens, `</think>` closes."),
        ("```\n<think>code</think>\n```", "```\n<think>code</think>\n```"),
        ("The report.\n<think>unfinished", "The report.\n<think>unfinished"),
        ("  I think so. ", "  I think so. "),
    ],
)
def test_thinking_is_no_part_of_a_text(text: str, kept: str):
    assert without_thinking(text) == kept


def test_the_tags_of_thinking_are_read_in_linear_time():
    def seconds(times: int) -> float:
        began = time.process_time()
        without_thinking("x</think>\n" * times)
        return time.process_time() - began

    small = min(seconds(5_000) for _ in range(3))
    assert min(seconds(40_000) for _ in range(3)) < 8 * 4 * small + 0.05


def test_the_bound_of_a_short_message_is_the_text_around_its_calls():
    assert read_calls("a" * PROSE_MAX + "\n", KNOWN) is None
    found = read_calls("a" * (PROSE_MAX - 1) + "\n" + SPELLINGS["hermes"], KNOWN)
    assert found is not None
    assert read_calls("a" * (PROSE_MAX + 1) + "\n" + SPELLINGS["hermes"], KNOWN) is None
