"""The fields of a return: their types, and which are required."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast

from deputy.core.contract.quote import is_unicode
from deputy.core.contract.return_types import STATUSES, SUMMARY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

Object = dict[str, Any]

_NUMBER_MAX = 2**63


def is_object(value: object) -> TypeGuard[Object]:
    """Whether the value is a JSON object."""
    return isinstance(value, dict)


def is_text(value: object) -> TypeGuard[str]:
    """Whether the value is a string of valid Unicode."""
    return isinstance(value, str) and is_unicode(value)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _NUMBER_MAX


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _NUMBER_MAX


def _is_path(value: object) -> bool:
    return isinstance(value, list) and all(map(is_text, cast(list[object], value)))


class ReturnField(NamedTuple):
    """The type of a field, in words, as a predicate and as JSON Schema; and whether the field is required."""

    type_name: str
    holds: Callable[[object], bool]
    form: Object
    is_required: bool = False


Fields = dict[str, ReturnField]


def _text(*, required: bool = False) -> ReturnField:
    return ReturnField("a string", is_text, {"type": "string"}, required)


def _list_of(fields: Fields, *, required: bool = False) -> ReturnField:
    return ReturnField("a list", _is_list, {"type": "array", "items": form_of(fields)}, required)


def _object_of(fields: Fields) -> ReturnField:
    return ReturnField("an object", is_object, form_of(fields), is_required=True)


def form_of(fields: Fields) -> Object:
    """The JSON Schema of an object with these fields."""
    return {
        "type": "object",
        "properties": {name: field.form for name, field in fields.items()},
        "required": [name for name, field in fields.items() if field.is_required],
    }


METADATA = {
    "session_id": _text(required=True),
    "agent_type": _text(required=True),
    "delegation_depth": ReturnField("a whole number, 0 or more", _is_count, {"type": "integer", "minimum": 0}),
    "delegation_path": ReturnField("a list of names", _is_path, {"type": "array", "items": {"type": "string"}}),
    "duration_seconds": ReturnField("a number of seconds, 0 or more", _is_duration, {"type": "number", "minimum": 0}),
}
ARTIFACT = {
    "type": _text(required=True),
    "path": _text(required=True),
    "summary": _text(),
}
ERROR = {
    "type": _text(required=True),
    "message": _text(required=True),
    "code": _text(),
    "recoverable": ReturnField("true or false", _is_flag, {"type": "boolean"}, is_required=True),
    "recommendation": _text(required=True),
}
RETURN = {
    "status": ReturnField("a status", is_text, {"enum": list(STATUSES)}, is_required=True),
    "summary": ReturnField(
        "a string", is_text, {"type": "string", "minLength": 1, "maxLength": SUMMARY_MAX}, is_required=True
    ),
    "artifacts": _list_of(ARTIFACT, required=True),
    "metadata": _object_of(METADATA),
    "errors": _list_of(ERROR),
    "next_steps": _text(),
}


def return_schema() -> Object:
    """The return as JSON Schema, for providers with structured output."""
    return form_of(RETURN)
