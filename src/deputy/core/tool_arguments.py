"""Tool arguments from one struct: its JSON Schema, and a reader that reports every problem with its field."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from msgspec import Struct, convert, json, structs

from deputy.core.field_readers import (
    FieldProblem,
    json_object,
    number,
    one_of,
    read_object,
    text,
    texts,
    whole,
    wrong_value,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from deputy.core.field_readers import Reader

_Arguments = TypeVar("_Arguments", bound=Struct)
_CHECKED_BY_US = frozenset(
    {"title", "default", "additionalProperties", "minimum", "maximum", "exclusiveMinimum"}
    | {"minLength", "maxLength", "minItems", "maxItems"}
)
"""Keys that cost a model tokens in every request: the reader of the arguments checks them anyway."""
_Schema: TypeAlias = "dict[str, Any]"


@cache
def arguments_schema(kind: type[Struct]) -> dict[str, Any]:
    """The JSON Schema of a struct as models need it: nested structs inlined, and absent fields instead of nulls."""
    _, parts = json.schema_components((kind,), ref_template="{name}")
    schema = _inlined({"$ref": kind.__name__}, parts)
    schema.pop("description", None)
    return schema


def short_schema(schema: dict[str, Any], hidden: Collection[str] = ()) -> dict[str, Any]:
    """The schema as models get it: the names, types and descriptions of the fields.

    Fields that are `hidden` are accepted and not advertised: only programs use them.
    """
    short = {key: value for key, value in schema.items() if key not in _CHECKED_BY_US}
    if "properties" in short:
        short["properties"] = {
            name: short_schema(field, hidden) for name, field in short["properties"].items() if name not in hidden
        }
    if not short.get("required", True):
        del short["required"]
    if "items" in short:
        short["items"] = short_schema(short["items"], hidden)
    if short.get("enum") and "type" not in short:
        short["type"] = "string"
    return short


def _inlined(schema: _Schema, parts: Mapping[str, _Schema]) -> _Schema:
    schema = {name: value for name, value in schema.items() if name != "default" or value not in (None, ())}
    if "anyOf" in schema:
        [option] = (option for option in schema.pop("anyOf") if option != {"type": "null"})
        return _inlined({**option, **schema}, parts)
    if "$ref" in schema:
        schema = {name: value for name, value in parts[schema["$ref"]].items() if name != "title"}
        schema["properties"] = {name: _inlined(field, parts) for name, field in schema["properties"].items()}
    elif "items" in schema:
        schema["items"] = _inlined(schema["items"], parts)
    elif "enum" in schema:
        schema["type"] = "string"
    return schema


def read_arguments(
    kind: type[_Arguments],
    value: object,
    problems: list[FieldProblem],
    where: str = "",
    readers: Mapping[str, Reader] | None = None,
) -> _Arguments | None:
    """The struct of these arguments, or None with its problems added; `readers` have further rules, by field name."""
    count = len(problems)
    data = _read_object(arguments_schema(kind), value, where, problems, readers or {})
    return convert(data, kind) if len(problems) == count else None


def _read_object(
    schema: _Schema, value: object, where: str, problems: list[FieldProblem], readers: Mapping[str, Reader]
) -> dict[str, Any]:
    fields = read_object(where or "arguments", value, schema["properties"], problems)
    data: dict[str, Any] = {}
    if not isinstance(value, dict):
        return data
    for name, part in schema["properties"].items():
        at = f"{where}.{name}" if where else name
        read = readers.get(name) or _reader(name, part)
        is_required = name in schema["required"]
        if name not in fields:
            if is_required:
                problems.append(FieldProblem(at, wrong_value(None, read(None)[1], missing=True)))
        elif fields[name] is not None or is_required or "default" in part:
            found, right = read(fields[name])
            if right:
                problems.append(FieldProblem(at, wrong_value(fields[name], right)))
            elif "properties" in part:
                data[name] = _read_object(part, found, at, problems, readers)
            elif "properties" in part.get("items", {}):
                data[name] = _read_objects(part["items"], cast("list[object]", found), at, problems, readers)
            else:
                data[name] = found
    return data


def _read_objects(
    schema: _Schema, entries: Sequence[object], at: str, problems: list[FieldProblem], readers: Mapping[str, Reader]
) -> list[dict[str, Any]]:
    """The objects of a list; a problem that several of them share is named once, with their number."""
    shared: dict[FieldProblem, list[str]] = {}
    data: list[dict[str, Any]] = []
    for index, entry in enumerate(entries):
        place, own = f"{at}[{index}]", list[FieldProblem]()
        data.append(_read_object(schema, entry, place, own, readers))
        for problem in own:
            shared.setdefault(structs.replace(problem, field=problem.field.removeprefix(place)), []).append(place)
    for problem, places in shared.items():
        more = f"; the same in {len(places) - 1} more" * (len(places) > 1)
        problems.append(FieldProblem(f"{places[0]}{problem.field}", f"{problem.message}{more}"))
    return data


def _reader(name: str, schema: _Schema) -> Reader:
    """The reader of one field by its schema; what objects and lists hold is read after it."""
    match schema:
        case {"enum": _}:
            return one_of(*schema["enum"])
        case {"type": "string"}:
            return text(schema.get("maxLength"), may_be_blank="minLength" not in schema)
        case {"type": "integer"}:
            return whole(schema["minimum"], schema.get("maximum"))
        case {"type": "number"}:
            return number(schema["maximum"], above=schema.get("exclusiveMinimum"))
        case {"type": "array", "items": {"properties": _}}:
            return _objects(name, schema["minItems"], schema["maxItems"])
        case {"type": "array"}:
            return texts(schema.get("maxItems"))
        case _:
            return json_object()


def _objects(name: str, least: int, most: int) -> Reader:
    right = f"a list of {least} to {most} {name}"

    def read(value: object) -> tuple[Any, str]:
        is_right = isinstance(value, list) and least <= len(cast("list[object]", value)) <= most
        return (cast("object", value), "") if is_right else (None, right)

    return read
