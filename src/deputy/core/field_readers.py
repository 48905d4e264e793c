"""Readers for JSON fields of models and files; every problem names its field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Reader: TypeAlias = Callable[[object], tuple[Any, str]]
    """Returns the value and "", or None and a description of valid values."""

MOST = 100_000_000
"""The maximum for seconds and dollars."""


class FieldProblem(Struct, frozen=True):
    """A wrong field, its problem and the valid values."""

    field: str
    message: str


def read_object(where: str, value: object, known: Iterable[str], problems: list[FieldProblem]) -> Mapping[str, Any]:
    """The fields of an object; any other value, and every unknown field, is a problem."""
    if not isinstance(value, dict):
        problems.append(FieldProblem(where, wrong_value(value, "an object")))
        return {}
    fields = cast("dict[str, Any]", value)
    allowed = sorted(known)
    for name in fields:
        if name not in allowed:
            field = name if where == "arguments" else f"{where}.{name}"
            problems.append(FieldProblem(field[:80], _not_a_field(name, allowed)))
    return fields


def _not_a_field(name: str, allowed: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name[:40], allowed, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"is not a field; {meant}the fields are {', '.join(allowed)}"


def read_field(
    fields: Mapping[str, Any], name: str, at: str, read: Reader, default: Any, problems: list[FieldProblem]
) -> Any:
    """Read an optional field."""
    if name not in fields or (fields[name] is None and default is None):
        return default
    value, right = read(fields[name])
    if right:
        problems.append(FieldProblem(f"{at}{name}", wrong_value(fields[name], right)))
        return default
    return value


def read_required(fields: Mapping[str, Any], name: str, at: str, read: Reader, problems: list[FieldProblem]) -> Any:
    """Read a required field."""
    if name not in fields:
        problems.append(FieldProblem(f"{at}{name}", wrong_value(None, read(None)[1], missing=True)))
        return ""
    return read_field(fields, name, at, read, "", problems)


def wrong_value(value: object, right: str, *, missing: bool = False) -> str:
    """The found value, cut if it is long, and the valid values."""
    if missing:
        return f"is missing; it must be {right}"
    shown = repr(value[:60] if isinstance(value, str) else value)
    return f"is {shown if len(shown) <= 80 else shown[:79] + '…'}; it must be {right}"


def _reader(right: str, is_valid: Callable[[Any], bool], convert: Callable[[Any], Any] = lambda value: value) -> Reader:
    return lambda value: (convert(value), "") if is_valid(value) else (None, right)


def text(longest: int | None = None, *, may_be_blank: bool = False) -> Reader:
    """A string that is not blank, unless it may be."""
    right = "a non-empty string" if longest is None else f"a string of 1 to {longest} characters"

    def is_valid(value: Any) -> bool:
        is_text = isinstance(value, str) and (may_be_blank or value.strip() != "")
        return is_text and (longest is None or len(value) <= longest)

    return _reader(right, is_valid)


def texts(most: int | None = None) -> Reader:
    """A list of strings."""
    right = "a list of strings" if most is None else f"a list of at most {most} strings"

    def is_valid(value: Any) -> bool:
        if not isinstance(value, list | tuple) or (most is not None and len(cast("list[Any]", value)) > most):
            return False
        return all(isinstance(item, str) and item for item in cast("list[Any]", value))

    return _reader(right, is_valid, tuple)


def whole(least: int, most: int | None = None) -> Reader:
    """A whole number between bounds."""
    right = f"a whole number from {least} to {most}" if most is not None else f"a whole number of at least {least}"
    return _reader(right, lambda value: type(value) is int and value >= least and (most is None or value <= most))


def number(most: float, *, above: float | None = None) -> Reader:
    """A number from 0, or above a bound, to `most`."""
    right = f"a number from 0 to {most:,}" if above is None else f"a number above {above:g} and at most {most:,}"

    def is_valid(value: Any) -> bool:
        return type(value) in (int, float) and 0 <= value <= most and (above is None or value > above)

    return _reader(right, is_valid, float)


def one_of(*words: str) -> Reader:
    """One of these words."""
    return _reader(f"one of {', '.join(words)}", lambda value: value in words)


def json_object(right: str = "an object") -> Reader:
    """An object with any fields."""
    return _reader(right, lambda value: isinstance(value, dict))
