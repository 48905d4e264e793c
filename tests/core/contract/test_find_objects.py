"""Objects found in text, in one pass."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputy.core.contract.find_objects import find_objects

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


@pytest.mark.parametrize(
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


def test_an_object_that_breaks_off_is_told_apart():
    assert list(find_objects('{"a": 1, b')) == [(0, 8, False)]


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
    assert growth(lambda size: sum(1 for _ in find_objects("x " + unit * (size // len(unit)))), 30_000) < 24
