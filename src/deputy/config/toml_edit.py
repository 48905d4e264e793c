"""Change a few keys of a TOML file as text: comments and order stay, and the result is checked."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, cast

from msgspec import json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HEADER = re.compile(r"\s*\[")


class CannotEdit(Exception):
    """The file is not TOML, or spells the table in a way that text changes cannot follow."""


def with_values(text: str, table: Sequence[str], values: Mapping[str, Any], comment: str = "") -> str:
    """The text with these values in a table; a new table is added at the end, below its comment."""
    expected = _parsed(text)
    _at(expected, table).update(values)
    lines = text.splitlines(keepends=True)
    start = _find(lines, table)
    if start is None:
        gap = ["\n"] if lines and lines[-1].strip() else []
        ends = [] if not lines or lines[-1].endswith("\n") else ["\n"]
        about = [f"# {line}\n" for line in comment.splitlines()]
        rows = [f"{key} = {_spelled(value)}\n" for key, value in values.items()]
        changed = [*lines, *ends, *gap, f"[{_name(table)}]\n", *about, *rows]
    else:
        changed = lines
        for key, value in values.items():
            changed = _replaced(changed, start, key, f"{key} = {_spelled(value)}")
    return _checked("".join(changed), expected)


def without_table(text: str, table: Sequence[str]) -> str:
    """The text without a table and the tables below it."""
    expected = _parsed(text)
    above = _at(expected, table[:-1])
    if table[-1] not in above:
        return text
    del above[table[-1]]
    # Tables that were only there for this one go with it.
    for length in range(len(table) - 1, 0, -1):
        if not _at(expected, table[:length]):
            _at(expected, table[: length - 1]).pop(table[length - 1])
    lines, kept, is_inside = text.splitlines(keepends=True), list[str](), False
    for line in lines:
        if _HEADER.match(line):
            header = _header(line)
            is_inside = header[: len(table)] == list(table)
        if not is_inside:
            kept.append(line)
    while kept and not kept[-1].strip() and len(kept) < len(lines):
        kept.pop()
    return _checked("".join(kept), expected)


def _find(lines: Sequence[str], table: Sequence[str]) -> int | None:
    return next((at for at, line in enumerate(lines) if _HEADER.match(line) and _header(line) == list(table)), None)


def _replaced(lines: Sequence[str], start: int, key: str, row: str) -> list[str]:
    """The lines with a key set in the table whose header is at `start`; the comment behind a simple value stays."""
    end = next((at for at in range(start + 1, len(lines)) if _HEADER.match(lines[at])), len(lines))
    for at in range(start + 1, end):
        found = re.match(
            rf"""\s*["']?{re.escape(key)}["']?\s*=\s*(?:"[^"\\]*"|'[^']*'|[\w.+-]+)?(\s*#.*)?""", lines[at]
        )
        if found is not None:
            return [*lines[:at], f"{row}{(found[1] or '').rstrip()}\n", *lines[at + 1 :]]
    header = lines[start] if lines[start].endswith("\n") else f"{lines[start]}\n"
    return [*lines[:start], header, f"{row}\n", *lines[start + 1 :]]


def _header(line: str) -> list[str]:
    """The names of a table header; empty for what is none."""
    try:
        table: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return []
    names: list[str] = []
    while isinstance(table, dict) and table:
        found = cast("dict[str, Any]", table)
        names.append(next(iter(found)))
        table = found[names[-1]]
    return names


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise CannotEdit(f"it is not valid TOML: {error}") from error


def _at(whole: dict[str, Any], table: Sequence[str]) -> dict[str, Any]:
    for name in table:
        below = whole.setdefault(name, {})
        if not isinstance(below, dict):
            raise CannotEdit(f"{name} is not a table")
        whole = cast("dict[str, Any]", below)
    return whole


def _checked(text: str, expected: dict[str, Any]) -> str:
    try:
        is_right = tomllib.loads(text) == expected
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise CannotEdit("its tables are spelled in an unusual way")
    return text


def _name(table: Sequence[str]) -> str:
    return ".".join(part if re.fullmatch("[A-Za-z0-9_-]+", part) else _spelled(part) for part in table)


def _spelled(value: Any) -> str:
    """A value as TOML: strings, booleans, numbers and lists are spelled as in JSON."""
    if isinstance(value, list):
        return f"[{', '.join(map(_spelled, cast('list[Any]', value)))}]"
    return json.encode(value).decode().replace("\x7f", "\\u007f")
