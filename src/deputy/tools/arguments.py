"""Tool arguments: strict parsing that reports every problem at once, and their JSON Schema."""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import NODEFAULT, Struct

from deputy.tools.tool_error import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_Arguments = TypeVar("_Arguments", bound=Struct)

_MOST_PROBLEMS = 50


def read_arguments(given: Mapping[str, Any], wanted: type[_Arguments]) -> _Arguments:
    """Convert the arguments; the error names every field that is unknown, missing or wrong."""
    try:
        arguments = msgspec.convert(dict(given), wanted)
        _expect_text(given.values())
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        problems = "\n".join(f"- {problem}" for problem in islice(_problems(given, wanted), _MOST_PROBLEMS))
        raise ToolError(f"Bad arguments; nothing was done.\n{problems}") from error
    return arguments


@cache
def schema_of(wanted: type[Struct]) -> dict[str, Any]:
    """The JSON Schema of a flat argument type, without title and description."""
    _, definitions = msgspec.json.schema_components((wanted,))
    schema: dict[str, Any] = definitions[wanted.__name__]
    return {key: value for key, value in schema.items() if key not in ("title", "description")}


def _problems(given: Mapping[str, Any], wanted: type[Struct]) -> Iterator[str]:
    fields = _fields(wanted)
    for name in given:
        if name not in fields:
            yield f"{name!r:.80}: unknown; the fields are {', '.join(fields)}"
    for name, field in fields.items():
        if name in given:
            problem = _problem(given[name], field.type)
            if problem:
                yield f"{name}: {problem}"
        elif field.default is NODEFAULT and field.default_factory is NODEFAULT:
            yield f"{name}: missing"


@cache
def _fields(wanted: type[Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(wanted)}


def _problem(value: Any, wanted: Any) -> str | None:
    try:
        msgspec.convert(value, wanted)
        _expect_text([value])
    except msgspec.ValidationError as error:
        return str(error)
    except UnicodeEncodeError:
        return "contains a lone surrogate, which is not valid text"
    return None


def _expect_text(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, str):
            value.encode()
