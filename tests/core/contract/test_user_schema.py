"""Returns in a form of the user's own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from tests.support.every_case import every_case

from deputy.core.contract import check_schema, read, schema_of
from deputy.core.errors import UsageError

FINDINGS = {
    "type": "object",
    "required": ["findings"],
    "additionalProperties": False,
    "properties": {
        "findings": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["title", "severity"],
                "properties": {"title": {"type": "string", "minLength": 3}, "severity": {"enum": ["low", "high"]}},
            },
        }
    },
}


class Finding(pydantic.BaseModel):
    title: str
    severity: int = pydantic.Field(ge=1, le=5)


class Findings(pydantic.BaseModel):
    findings: list[Finding]


def messages(value: object, schema: object) -> list[str]:
    checked = check_schema(value, schema_of(schema))
    assert all(problem.rule == "contract.check" for problem in checked.problems)
    assert (checked.return_ is None) == bool(checked.problems)
    return [problem.message for problem in checked.problems]


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def test_a_value_that_matches_is_the_return():
    value = {"findings": [{"title": "Leak", "severity": "high"}]}
    assert check_schema(value, schema_of(FINDINGS)).return_ == value


def test_all_problems_come_at_once_each_with_its_place():
    value = {"findings": [{"title": "x"}, {"title": 5, "severity": "urgent"}], "more": 1}
    assert sorted(messages(value, FINDINGS)) == [
        "Missing required field: findings[0].severity",
        "Return: Additional properties are not allowed ('more' was unexpected), found an object",
        "findings[0].title: the value is shorter than 3 characters, found x",
        'findings[1].severity: the value is not one of "low" or "high", found urgent',
        'findings[1].title: the value is not of type "string", found 5',
    ]


def test_the_return_is_found_between_prose_by_the_fields_that_the_schema_requires():
    text = 'I read {"files": 3}. Result:\n```json\n{"findings": []}\n```'
    assert read(text, schema=schema_of(FINDINGS)).return_ == {"findings": []}
    assert read("[1, 2]", schema=schema_of({"type": "array"})).return_ == [1, 2]
    assert read("Nothing found.", schema=schema_of(FINDINGS)).problems[0].message == "Return is not valid JSON"


def test_booleans_are_schemas():
    assert messages({}, True) == []
    assert messages({}, False) == ["Return: False schema does not allow the value, found an object"]


@every_case(
    ("schema", "where", "what"),
    [
        ({"type": "strin"}, "schema.type", "strin"),
        ({"properties": {"a": {"minimum": "x"}}}, "schema.properties.a.minimum", "number"),
        ({"pattern": "(a"}, "schema.pattern", "regex"),
        ({"$schema": "https://example.org/meta"}, "schema", "meta-schema"),
        ({"$ref": "#/$defs/none"}, "schema.$ref", "no such part"),
        ({"$ref": "#/$defs/%61", "$defs": {"a": {}}}, "schema.$ref", "no such part"),
        ({"$ref": "other.json"}, "schema.$ref", "references to other documents are not followed"),
        ({"$defs": {"a": {"$id": "https://example.org/a"}}}, "schema.$id", "move this part"),
        ({"const": object()}, "schema", "not plain JSON"),
        ({"title": "x" * 300_000}, "schema", "at most 262,144"),
        ({"patternProperties": {f"^{n}": {} for n in range(101)}}, "schema", "101 patterns"),
        ([], "schema", "pydantic"),
        ("object", "schema", "pydantic"),
        (None, "schema", "pydantic"),
        (nested(100_000), "schema", "not plain JSON"),
        ({"properties": {"a": nested(400)}}, "schema", ""),
    ],
)
def test_a_schema_that_is_wrong_is_refused_with_its_place(schema, where, what):
    with pytest.raises(UsageError) as error:
        schema_of(schema)
    assert error.value.field == where
    assert what in str(error.value)


def test_nothing_is_ever_fetched(tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text('{"type": "string"}')
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        for schema in (
            {"$ref": address},
            {"$ref": secret.as_uri()},
            {"$ref": str(secret)},
            {"$dynamicRef": f"{address}#a"},
            {"$schema": address},
            {"$id": address, "$ref": "other.json"},
            {"properties": {"a": {"allOf": [{"$ref": address}]}}},
        ):
            with pytest.raises(UsageError):
                schema_of(schema)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_patterns_are_matched_in_linear_time(growth):
    schema = schema_of({"type": "string", "pattern": "^(a+)+$"})
    assert not check_schema("a" * 40_000 + "!", schema).is_valid
    assert growth(lambda size: check_schema("a" * size + "!", schema), 200_000) < 24


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "(?<!a)b", "(a{1000}){1000}"])
def test_patterns_that_cannot_be_matched_in_linear_time_are_refused(pattern):
    with pytest.raises(UsageError, match=r"schema\.pattern: .*regex"):
        schema_of({"pattern": pattern})


def bomb(size: int, wrap: str) -> dict[str, Any]:
    """Few lines that ask for two to the power of `size` judgements."""
    parts = {
        f"d{n}": {"allOf": [{wrap: {"$ref": f"#/$defs/d{n + 1}"}} if wrap else {"$ref": f"#/$defs/d{n + 1}"}] * 2}
        for n in range(size)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**parts, f"d{size}": {"type": "string"}}}


@pytest.mark.parametrize("wrap", ["", "not", "items", "additionalProperties"])
def test_references_upon_references_are_refused_before_any_work(wrap):
    with pytest.raises(UsageError, match="too many nested references"):
        schema_of(bomb(60, wrap))
    assert schema_of(bomb(5, wrap))


def test_a_chain_of_references_without_end_is_refused():
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(5_000)}
    with pytest.raises(UsageError, match="too many nested references"):
        schema_of({"$ref": "#/$defs/d0", "$defs": {**chain, "d5000": {}}})


def test_a_name_that_two_parts_share_cannot_be_referred_to():
    parts = {"a": {"$anchor": "x", "type": "string"}, "b": {"$anchor": "y"}}
    assert messages(1, {"$ref": "#x", "$defs": parts}) == ['Return: the value is not of type "string", found 1']
    with pytest.raises(UsageError, match="no such part, or more than one"):
        schema_of({"$ref": "#x", "$defs": {**parts, "c": {"$anchor": "x"}}})


def test_a_schema_may_refer_to_itself():
    tree = {"type": "object", "required": ["name"], "properties": {"name": {}, "parts": {"items": {"$ref": "#"}}}}
    assert messages({"name": 1, "parts": [{"name": 2}]}, tree) == []
    assert messages({"name": 1, "parts": [{"nam": 2}]}, tree) == ["Missing required field: parts[0].name"]
    assert messages(1, {"$ref": "#"}) == []


def test_what_would_take_too_long_to_explain_is_only_said_to_be_wrong():
    branch = {"properties": {"a": {"$ref": "#/$defs/t"}}}
    schema = {
        "$defs": {"t": {"anyOf": [{**branch, "required": ["y"]}, {**branch, "required": ["z"]}]}},
        "$ref": "#/$defs/t",
    }
    assert messages(nested(3), schema)[0].startswith("Return: the value is not valid under any of")
    assert messages(nested(60), schema) == ["Return does not match the schema"]


def test_of_a_large_value_only_the_first_problem_is_explained():
    value = [*["x"] * 150_000, 1, 2]
    assert messages(value, {"items": {"type": "string"}}) == ['[150000]: the value is not of type "string", found 1']


def test_a_value_too_large_for_its_schema_is_not_judged():
    heavy = {"items": {"allOf": [{"type": "integer"}] * 2_000}}
    assert messages([0] * 100, heavy) == []
    assert messages([0] * 50_000, heavy) == ["Return is too large for its schema: 50,001 values"]


def test_problems_stay_short_whatever_was_returned():
    found = messages(["\x1b" + "x" * 10_000] * 500, {"items": {"type": "integer"}})
    assert len(found) == 51
    assert found[-1] == "… and 450 more like these"
    assert all(len(message) < 200 and message.isprintable() for message in found)


def test_a_pydantic_model_makes_an_instance():
    schema = schema_of(Findings)
    checked = read('Here: {"findings": [{"title": "Leak", "severity": 4}]}', schema=schema)
    assert checked.return_ == Findings(findings=[Finding(title="Leak", severity=4)])
    assert schema.keys == ("findings",)


def test_a_pydantic_model_says_all_that_is_wrong():
    assert messages({"findings": [{"title": 5, "severity": 9}, {"title": "x"}]}, Findings) == [
        "findings[0].title: Input should be a valid string, found 5",
        "findings[0].severity: Input should be less than or equal to 5, found 9",
        "Missing required field: findings[1].severity",
    ]


def test_a_pydantic_model_reads_json_as_json():
    class Strict(pydantic.BaseModel, strict=True):
        pair: tuple[int, int]

    assert check_schema({"pair": [1, 2]}, schema_of(Strict)).return_ == Strict(pair=(1, 2))


@dataclass
class Point:
    x: int
    y: int = 0


class Line(Struct):
    start: Point
    name: str = ""


def test_a_type_makes_an_instance_and_its_fields_stand_at_the_root_of_its_form():
    schema = schema_of(Line)
    assert check_schema({"start": {"x": 1}, "name": "a"}, schema).return_ == Line(start=Point(1), name="a")
    assert schema.keys == ("start",)
    assert schema.form["properties"]["start"] == {"$ref": "#/$defs/Point"}
    assert schema.form["$defs"]["Point"]["required"] == ["x"]
    points = schema_of(list[Point])
    assert check_schema([{"x": 1}], points).return_ == [Point(1)]
    assert points.form["type"] == "array"


def test_a_type_says_what_is_wrong_with_its_place():
    assert messages({"start": {"x": "1"}}, Line) == ["Return: Expected `int`, got `str` - at `$.start.x`"]
    assert messages({}, Line) == ["Return: Object missing required field `start`"]


def test_a_type_without_a_json_schema_is_refused():
    with pytest.raises(UsageError, match="it has no JSON Schema"):
        schema_of(socket.socket)


def test_a_reference_may_lead_through_a_list():
    schema = {"$ref": "#/allOf/1", "allOf": [{}, {"type": "string"}]}
    assert messages("a", schema) == []
    assert messages(1, schema)
    for wrong in ("#/allOf/2", "#/allOf/x", "#/allOf/0/type/0", "#/allOf/000000000"):
        with pytest.raises(UsageError, match="no such part"):
            schema_of({**schema, "$ref": wrong})


def test_a_model_without_a_json_schema_is_refused():
    class Odd(pydantic.BaseModel, arbitrary_types_allowed=True):
        stream: socket.socket

    with pytest.raises(UsageError, match="no JSON Schema"):
        schema_of(Odd)


def test_the_validator_is_loaded_only_when_a_schema_is_used():
    code = (
        "import sys, deputy.core.contract; print(*{'jsonschema_rs', 'pydantic', 'json', 'asyncio'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout.split() == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["findings", "title", "x"]), inner),
    max_leaves=10,
)
SCHEMAS = st.recursive(
    st.booleans() | st.none() | st.integers(-2, 2) | st.sampled_from(["#", "#/$defs/a", "#a", "object", "x", "^a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["$ref", "$defs", "a", "anyOf", "items", "properties", "type", "$id", "$anchor", "not", "pattern"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(VALUES)
def test_no_value_makes_a_schema_or_a_model_raise(value):
    for schema in (FINDINGS, Findings):
        messages(value, schema)


@settings(deadline=None)
@given(SCHEMAS, VALUES)
def test_a_schema_works_or_is_refused_with_words(source, value):
    with suppress(UsageError):
        schema = schema_of(source)
        check_schema(value, schema)
        json.dumps(schema.form)
