"""The value that a report holds."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.every_case import every_case

from deputy.core.contract import ContractProblem, Parsed, parse
from deputy.core.contract.return_parser import CHARACTERS_MAX, DEPTH_MAX, NOT_JSON, find_objects

VALUE = {"status": "completed", "summary": "a"}
TEXT = json.dumps(VALUE)


def value_of(text: str, mode="strict", **options):
    parsed = parse(text, mode, **options)
    assert isinstance(parsed, Parsed), parsed
    return parsed.value


def message_of(text: str, mode="strict") -> str:
    parsed = parse(text, mode)
    assert isinstance(parsed, ContractProblem), parsed
    assert parsed.rule == "contract.parse"
    return parsed.message


@pytest.mark.rule("contract.parse")
@every_case(
    "text",
    [
        TEXT,
        f"\ufeff{TEXT}",
        f"\n {TEXT} \n",
        f"```json\n{TEXT}\n```",
        f"```\n{TEXT}\n```",
        f"```{TEXT}```",
        f"~~~\n{TEXT}\n~~~",
        f"Here it is: {TEXT}. Bye.",
        f"One:\n```json\n{TEXT}\n```\nTwo:\n```json\n{json.dumps(VALUE, indent=2)}\n```",
    ],
)
def test_a_report_that_is_or_holds_one_object_gives_it(text):
    assert value_of(text) == VALUE


@pytest.mark.rule("contract.parse")
@every_case("mode", ["strict", "lenient"])
@every_case(
    "text", ["", "  ", "All done.", "# Done\n\n- a {b}\n", "{}}{", "{'a': 1}", '{"a": 1', "[1, 2", "```\n```", "nul"]
)
def test_plain_text_fails_with_words_that_stay(text, mode):
    assert message_of(text, mode) == "Return is not valid JSON"


def test_where_the_json_breaks_is_said():
    problem = parse('{"status": "completed",\n "summary" "x"}')
    assert isinstance(problem, ContractProblem)
    assert "line 2, column 12" in problem.remedy


def test_a_list_in_a_fence_is_a_value_too():
    assert value_of('```json\n[{"a": 1}, {"b": 2}]\n```') == [{"a": 1}, {"b": 2}]


@pytest.mark.rule("contract.parse")
def test_of_several_objects_the_one_with_the_most_keys_is_meant():
    assert value_of(f'{{"x": 1}} {TEXT} {{"y": 2}}') == VALUE
    assert value_of('{"x": 1} {"x": 1, "z": 0} {"y": 2}', keys=("x", "z")) == {"x": 1, "z": 0}
    assert value_of('{"status": "ok", "port": 80} ' + TEXT) == VALUE
    assert value_of('It is {"y": 2}.', keys=("x",)) == {"y": 2}
    assert value_of('It is {"y": 2}.', keys=()) == {"y": 2}


@pytest.mark.rule("contract.parse")
def test_several_that_could_be_meant_are_a_problem_and_lenient_reading_takes_the_last():
    text = f'{{"status": "failed", "summary": "b"}} {TEXT}'
    assert message_of(text) == "Return has 2 JSON objects: expected one"
    assert parse(text, "lenient") == Parsed(value=VALUE, corrections=("the last of 2 objects was read",))


def test_parts_of_an_object_that_broke_off_are_not_taken_for_the_return():
    broken = '{"status": "completed" "summary": "a", "artifacts": [{"summary": "b"}], "metadata": {"session_id": "x"}}'
    assert message_of(broken) == message_of(broken.replace("session_id", "status")) == NOT_JSON
    assert value_of('{"a": 1 "b": {"c": 2}} {"x": 1}', keys=("x",)) == {"x": 1}
    parsed = parse('{"a": 1 "b": {"c": 2}}', keys=())
    assert isinstance(parsed, ContractProblem)


@pytest.mark.rule("contract.lenient")
def test_lenient_reading_forgives_trailing_commas_and_line_ends_in_texts():
    assert parse('{"a": ["x,]",],\n}', "lenient") == Parsed(
        value={"a": ["x,]"]}, corrections=("trailing commas were ignored",)
    )
    assert parse('{"a": "x\ny"}', "lenient") == Parsed(
        value={"a": "x\ny"}, corrections=("line ends or control characters inside texts were accepted",)
    )
    assert message_of('{"a": [1,]}') == message_of('{"a": "x\ny"}') == NOT_JSON


@every_case("mode", ["strict", "lenient"])
@every_case(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "Duplicate field: a"),
        ('so {"b": {"a": 1, "a": 1}} it is', "Duplicate field: a"),
        ('{"a": NaN}', NOT_JSON),
        ('{"a": -Infinity}', NOT_JSON),
        ('{"a": 1e400}', "Number out of range: 1e400"),
        ('{"a": 18446744073709551616}', "Number out of range: 18446744073709551616"),
        ('{"a": -9223372036854775809}', "Number out of range: -9223372036854775809"),
        ('{"a": 0.' + "1" * 70 + "}", "Number out of range: 0." + "1" * 37 + "…"),
        ('{"a": "\\udc00"}', "Return has text that is not valid Unicode"),
        ('{"\\ud83d": 1}', "Return has text that is not valid Unicode"),
        ('{"a": "\ud800"}', "Return has text that is not valid Unicode"),
    ],
)
def test_what_is_json_and_still_refused(text, message, mode):
    assert message_of(text, mode) == message


def test_numbers_at_the_bounds_are_kept():
    assert value_of("[18446744073709551615, -9223372036854775808, 1.5e300]") == [2**64 - 1, -(2**63), 1.5e300]


@pytest.mark.rule("contract.parse")
@pytest.mark.parametrize("mode", ["strict", "lenient"])
@pytest.mark.parametrize("prose", ["", "So: "])
def test_deep_nesting_is_a_clear_problem(prose, mode):
    message = f"Return is nested too deeply (max {DEPTH_MAX} levels)"
    for depth in (DEPTH_MAX, 900, 5_000, 100_000):
        assert message_of(prose + '{"a":' * depth + "1" + "}" * depth, mode) == message
    assert message_of("[" * 100_000) == message
    assert value_of('{"a":' * (DEPTH_MAX - 1) + "1" + "}" * (DEPTH_MAX - 1))


def test_a_wide_value_is_not_a_deep_one():
    assert len(value_of("[" + ",".join(["[1]"] * 1000) + "]")) == 1000


@pytest.mark.rule("contract.parse")
def test_fifty_megabytes_are_a_clear_problem():
    message = message_of('{"a": "' + "x" * 50_000_000 + '"}')
    assert message == f"Return is too long: 50,000,009 characters (max {CHARACTERS_MAX:,})"


@pytest.mark.parametrize("mode", ["strict", "lenient"])
@pytest.mark.parametrize(
    "unit",
    [
        "{",
        '"',
        "```",
        "```\n",
        '{"a":',
        '{"status":1}',
        '{"status":1,}',
        '{"a":"\n"}',
        '"\\"',
        ",",
        ", ",
        '{"a":[1,],}',
        "{\n",
        '{"status":',
    ],
)
def test_reading_is_linear_whatever_is_repeated(unit, mode, growth):
    assert growth(lambda size: parse("x " + unit * (size // len(unit)), mode), 5_000) < 24


@settings(deadline=None)
@given(
    st.text(alphabet='{}[]":,\\ \nas1`-tfu\ud800\x00', max_size=80) | st.text(), st.sampled_from(["strict", "lenient"])
)
def test_no_text_makes_it_raise(text, mode):
    parsed = parse(text, mode)
    assert isinstance(parsed, Parsed) or (parsed.rule == "contract.parse" and parsed.message)


@settings(deadline=None)
@given(st.text(alphabet='{}[]":,\\ \nas1`', max_size=60))
def test_what_is_read_strictly_is_read_leniently_too(text):
    strict = parse(text)
    if isinstance(strict, Parsed):
        assert parse(text, "lenient") == strict


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), VALUES, min_size=1, max_size=4)
SOUP = st.text(alphabet='{}[]":,\\ \na1`-tfn', max_size=60)


def whole(text: str) -> list[str]:
    return [text[start:end] for start, end, is_whole in find_objects(text) if is_whole]


@pytest.mark.rule("contract.parse")
@settings(deadline=None)
@given(st.text(), OBJECTS, st.text(), st.booleans())
def test_an_object_between_any_prose_without_braces_is_found(before, value, after, is_ascii):
    text = json.dumps(value, ensure_ascii=is_ascii, indent=1)
    assert whole(before.replace("{", "(") + text + after.replace("{", "(")) == [text]


@settings(deadline=None)
@given(
    st.lists(OBJECTS, min_size=1, max_size=4),
    st.sampled_from([" ", "\n", " and ", "", '"', "{", "{a}", "[", "]", ",", '={"c"} ']),
)
def test_objects_in_a_row_are_all_found(values, between):
    texts = [json.dumps(value) for value in values]
    assert whole(between.join(texts)) == texts


@settings(deadline=None)
@given(SOUP)
def test_spans_follow_each_other_in_any_text(text):
    spans = list(find_objects(text))
    assert all(start < end <= len(text) and text[start] == "{" for start, end, _ in spans)
    assert all(one.end <= other.start for one, other in pairwise(spans))


@settings(deadline=None)
@given(SOUP)
def test_what_json_says_is_an_object_is_one(text):
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text)
    except ValueError:
        return
    if isinstance(value, dict) and value:
        assert next(find_objects(text)) == (0, end, True)


@every_case(
    ("text", "found"),
    [
        ('{"a": 1}', ['{"a": 1}']),
        ('{"a": {"b": [{}, {"c": "}"}]}}', ['{"a": {"b": [{}, {"c": "}"}]}}']),
        ('x = {"c"}; {"a": 1}', ['{"a": 1}']),
        ('it starts with {" and: {"a": 1}', ['{"a": 1}']),
        ('{"a": "b\\"c"}', ['{"a": "b\\"c"}']),
        ('{"a": 1,}', ['{"a": 1,}']),
        ('{"a": 1', []),
        ('{"a": 1]', []),
        ('{"a": [1}', []),
        ("{}", []),
        ('{"a" 1}', []),
        ('{"a": 1, "b": {"c": 2}, oops', []),
    ],
)
def test_what_is_found(text, found):
    assert whole(text) == found


def test_an_object_that_breaks_off_is_distinguished():
    assert list(find_objects('{"a": 1, b')) == [(0, 8, False)]
    assert list(find_objects('{"a": {"b": 1} c}')) == [(0, 14, False)]


UNITS = [
    "{",
    '"',
    "```",
    '{"',
    '{"a":',
    '{"a":[',
    '{"a":{}',
    "[{},",
    '{"":1}',
    '\\"',
    '{"\\',
    "{ ",
    '{"x{"',
    '{"x{":"',
    '{"a":1,"',
    '{"":"":',
]


@pytest.mark.parametrize("unit", UNITS)
def test_the_work_is_linear_whatever_is_repeated(unit, growth):
    assert growth(lambda size: sum(1 for _ in find_objects("x " + unit * (size // len(unit)))), 10_000) < 24
