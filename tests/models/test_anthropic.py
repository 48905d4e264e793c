import pytest

from deputy.core.contract import return_schema
from deputy.models.anthropic import closed_schema


def test_objects_are_closed_and_bounds_on_values_left_out():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1},
            "kind": {"oneOf": [{"const": "a"}, {"type": "string", "format": "date"}, {"$ref": "#/$defs/deep"}]},
            "list": {"type": "array", "items": {"type": "string", "pattern": "x"}, "minItems": 2},
        },
        "required": ["n"],
        "$defs": {"deep": {"type": "object", "properties": {"x": {"type": "string", "format": "odd"}}}},
    }
    assert closed_schema(schema) == {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "kind": {"anyOf": [{"const": "a"}, {"type": "string", "format": "date"}, {"$ref": "#/$defs/deep"}]},
            "list": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["n"],
        "$defs": {"deep": {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": False}},
        "additionalProperties": False,
    }


def test_the_form_of_the_contract_can_be_enforced():
    assert closed_schema(return_schema()) is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {}}},
        {"allOf": [{"type": "object"}]},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
        {"not": {"type": "string"}},
    ],
)
def test_what_a_closed_schema_would_forbid_or_cannot_say_is_not_enforced(schema):
    assert closed_schema(schema) is None


def test_a_schema_without_end_is_not_enforced():
    schema = {"type": "array", "items": {"type": "string"}}
    for _ in range(2000):
        schema = {"type": "array", "items": schema}
    assert closed_schema(schema) is None
