"""The weight of a JSON Schema: how many subschemas a validator evaluates once references are followed.

A validator evaluates a subschema for every reference to it, so forty lines can cause a billion evaluations. The count
is made before validation and stops early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from deputy.core.contract.json_size import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor", "$id", "id")
_ON_THE_SAME_VALUE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_ON_VALUES_INSIDE = (
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "unevaluatedProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "unevaluatedItems",
)
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})

Object = dict[str, Any]


class SchemaWeight:
    """Counts the evaluations of one schema."""

    def __init__(self, schema: Any, most: int) -> None:
        self._schema = schema
        self._most = most
        self._anchors = _find_anchors(schema)

    def weigh(self, levels: int | None = None) -> int:
        """The weight for a value with this many levels; without a number, up to the point where the schema recurs."""
        try:
            return self._weigh(self._schema, levels, {})
        except RecursionError:
            return self._most + 1

    def _weigh(self, schema: Any, levels: int | None, known: dict[tuple[int, int | None], int]) -> int:
        if not isinstance(schema, dict) or levels == 0:
            return 1
        key = (id(cast(object, schema)), levels)
        if key not in known:
            known[key] = 1
            total = 1
            for part, below in self._parts(cast(Object, schema), levels):
                total += self._weigh(part, below, known)
                if total > self._most:
                    break
            known[key] = total
        return known[key]

    def _parts(self, schema: Object, levels: int | None) -> Iterator[tuple[Any, int | None]]:
        for name in REFERENCES:
            if name in schema:
                yield self.follow(schema[name]), levels
        for name in _ON_THE_SAME_VALUE:
            for part in _schemas(name, schema.get(name)):
                yield part, levels
        for name in _ON_VALUES_INSIDE:
            for part in _schemas(name, schema.get(name)):
                yield part, None if levels is None else levels - 1

    def follow(self, reference: object) -> Any:
        """The target of a reference; None when it has none."""
        if not isinstance(reference, str):
            return None
        if not reference.startswith("#/"):
            return self._schema if reference == "#" else self._anchors.get(reference)
        target = self._schema
        for token in reference[2:].split("/"):
            name = token.replace("~1", "/").replace("~0", "~")
            match target:
                case dict():
                    target = cast(Object, target).get(name)
                case list() if name.isdecimal() and len(name) < 9 and int(name) < len(cast(list[Any], target)):
                    target = cast(list[Any], target)[int(name)]
                case _:
                    return None
        return target


def _schemas(name: str, value: Any) -> list[Any]:
    match value:
        case dict() if name in _BY_NAME:
            return list(cast(Object, value).values())
        case list():
            return cast(list[Any], value)
        case _:
            return [] if value is None else [value]


def _find_anchors(schema: Any) -> dict[str, Any]:
    named: dict[str, list[Any]] = {}
    for node in walk(schema):
        for keyword in _ANCHORS:
            if isinstance(name := node.get(keyword), str):
                named.setdefault(f"#{name.removeprefix('#')}", []).append(node)
    # Validators differ on a name that is defined twice, so such a name is not resolved.
    return {name: nodes[0] for name, nodes in named.items() if len(nodes) == 1}
