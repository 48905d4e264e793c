"""Convert a JSON Schema to the form that Anthropic enforces: closed objects, no bounds on values."""

from __future__ import annotations

from typing import Any, Final, cast

KEPT: Final = frozenset({"type", "description", "title", "enum", "const", "$ref", "required", "default"})
FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
DROPPED: Final = frozenset(
    {
        "$schema",
        "$id",
        "$comment",
        "examples",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
    }
)
"""Keywords that only narrow: a looser schema still helps, because the answer is checked against the whole one."""

_DEEPEST = 40


def closed(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The enforceable form of a schema; None if it would forbid valid values, or does not exist."""
    try:
        return _closed(schema, 0)
    except _NotClosed:
        return None


class _NotClosed(Exception):
    """The schema has no enforceable form."""


def _closed(schema: object, depth: int) -> dict[str, Any]:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        raise _NotClosed
    form: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", schema).items():
        if name not in DROPPED:
            form |= _kept(name, value, depth)
    if form.get("type") == "object":
        # An object without named fields is a map; closed, it would always be empty.
        if not form.get("properties"):
            raise _NotClosed
        form["additionalProperties"] = False
    elif not form.keys() & {"type", "enum", "const", "$ref", "anyOf"}:
        raise _NotClosed
    return form


def _kept(name: str, value: Any, depth: int) -> dict[str, Any]:
    match name, value:
        case (("properties" | "$defs"), dict()):
            return {name: {key: _closed(item, depth + 1) for key, item in cast("dict[str, Any]", value).items()}}
        case "items", dict():
            return {name: _closed(cast("object", value), depth + 1)}
        case (("anyOf" | "oneOf"), list()):
            return {"anyOf": [_closed(item, depth + 1) for item in cast("list[Any]", value)]}
        case "additionalProperties", False:
            return {}
        case "format", str():
            return {name: value} if value in FORMATS else {}
        case _ if name in KEPT:
            return {name: value}
        case _:
            raise _NotClosed
