"""An approval request as text: every field on its own rows, invisible characters escaped, cut bytes counted."""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from deputy.core.conversation import text_size
from deputy.core.visible_text import escape, escaped_invisible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from re import Match, Pattern

    from deputy.core.approval import ApprovalPart, ApprovalRequest

PART_ROWS = 20
"""Rows shown of one field, unless everything is shown."""
MOST_ROWS = 60
"""Rows shown of all fields, unless everything is shown."""
DEFAULT_WIDTH = 100
_LEAST_WIDTH = 30
_INDENT = "  "
_FIRST, _CONTINUED = "    │ ", "    ┊ "
_HEADLINE = 120
_READ_AHEAD = 20_000
LONGEST_RUN_OF_SPACES = 8
LONGEST_RUN_OF_BLANK_LINES = 3
_MOST_MARKS = 2
"""Combining marks allowed on one letter; more would be drawn over the lines around it."""


class Screen(NamedTuple):
    """The shown text of an approval request, and the number of hidden bytes."""

    text: str
    hidden_bytes: int = 0

    @property
    def is_cut(self) -> bool:
        """Whether bytes are hidden."""
        return self.hidden_bytes > 0


def headline(request: ApprovalRequest) -> str:
    """One line for lists and progress; a person never approves by it."""
    first = request.parts[0].text if request.parts else ""
    shown = visible_line(first[: _HEADLINE * 8])
    is_cut = len(shown) > _HEADLINE or len(first) > _HEADLINE * 8
    cut = f"{shown[:_HEADLINE]}… ({text_size(first):,} bytes)" if is_cut else shown
    return f"{request.title}: {cut} (risk: {request.risk})"


def screen(request: ApprovalRequest, *, width: int = DEFAULT_WIDTH, whole: bool = False) -> Screen:
    """The request on rows no wider than the terminal; long fields are cut unless `whole`."""
    width = max(_LEAST_WIDTH, width)
    lines = [f"{request.title} · risk: {request.risk}"]
    for fact in _facts(request):
        lines += _wrapped(f"{_INDENT}{fact}", width, _CONTINUED)
    hidden = hidden_fields = rows = 0
    for part in request.parts:
        if not whole and rows >= MOST_ROWS:
            hidden_fields += 1
            hidden += text_size(part.text) or 1
            continue
        shown, more = _part_rows(part, width, None if whole else min(PART_ROWS, MOST_ROWS - rows))
        rows += len(shown)
        hidden += more
        lines += shown
    if hidden_fields:
        lines.append(f"{_INDENT}… {hidden_fields:,} more fields; details shows them")
    if hidden:
        lines.append(f"{_INDENT}NOT SHOWN: {hidden:,} bytes of this call; details shows all of it")
    lines += _wrapped(f"{_INDENT}digest: {request.digest}", width, f"{_INDENT}  ")
    return Screen("\n".join(lines), hidden)


def _facts(request: ApprovalRequest) -> Iterator[str]:
    if request.session_id or request.label:
        label = visible_line(request.label)
        if not request.label.isascii():
            label += f" = {request.label!a}"
        path = " › ".join(map(visible_line, request.path))
        yield f"asked by: {label} ({path}) {request.session_id}".strip()
    if request.folder:
        yield f"folder: {visible_line(request.folder)}"
    if request.cost:
        yield f"cost: {request.cost}"


def _part_rows(part: ApprovalPart, width: int, most: int | None) -> tuple[list[str], int]:
    """The rows of a field, and the number of its hidden bytes."""
    name = f"{_INDENT}{visible_line(part.name)}:"
    text = part.text
    if "\n" not in text and len(text) < _READ_AHEAD:
        row = f"{name} {visible(text)}"
        if _columns(row) <= width:
            return [row], 0
    lines = text.split("\n")
    rows = _wrapped(f"{name} ({len(lines):,} line{'s' * (len(lines) != 1)}, {text_size(text):,} bytes)", width, _INDENT)
    room = None if most is None else max(1, most - 1)
    number = shown_bytes = 0
    for line, count in _folded(lines):
        left = None if room is None else room - (len(rows) - 1)
        if left is not None and left <= 0:
            more = text_size(text) - shown_bytes
            rest = len(lines) - number
            rows.append(f"    … {rest:,} more line{'s' * (rest != 1)}, {more:,} more bytes")
            return rows, max(1, more)
        # Escaping never shortens text, except for long runs of spaces.
        bound = len(line) if left is None else left * width + _READ_AHEAD
        folded = f"«{count:,} blank lines»" if count > 1 else ""
        pieces = _wrapped(f"{_FIRST}{visible(line[:bound])}{folded}", width, _CONTINUED)
        if left is not None and (len(pieces) > left or len(line) > bound):
            rows += pieces[:left]
            more = text_size(text) - shown_bytes
            rest = len(lines) - number - 1
            others = f"{rest:,} more line{'s' * (rest != 1)}"
            rows.append(f"    … the rest of this line and {others}: {more:,} bytes from its beginning")
            return rows, max(1, more)
        rows += pieces
        number += count
        shown_bytes += (text_size(line) + 1) * count
    return rows, 0


def _folded(lines: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The lines, each with 1; of a long run of equal blank lines the first, with the length of the run."""
    for line, run in groupby(lines):
        count = sum(1 for _ in run)
        # In a diff, a blank line has a sign.
        is_blank = not (line[1:] if line.startswith(("+", "-")) else line).strip(" ")
        if is_blank and count > LONGEST_RUN_OF_BLANK_LINES:
            yield line, count
        else:
            yield from ((line, 1) for _ in range(count))


def _wrapped(line: str, width: int, continued: str) -> list[str]:
    """One line on several rows; a prefix marks each continuation, so that it cannot pass for a new line."""
    if line.isascii() and len(line) <= width:
        return [line]
    rows: list[str] = []
    begin, room, prefix = 0, width, ""
    for end, letter in enumerate(line):
        room -= 1 if letter.isascii() else 2
        if room < 0:
            rows.append(prefix + line[begin:end])
            begin, prefix = end, continued
            room = width - _columns(continued) - (1 if letter.isascii() else 2)
    return [*rows, prefix + line[begin:]]


def _columns(text: str) -> int:
    """The maximum columns of a text: terminals disagree about the width of non-ASCII characters."""
    return len(text) if text.isascii() else sum(1 if letter.isascii() else 2 for letter in text)


def visible(text: str) -> str:
    """The text with every invisible character escaped, tabs as ⇥, long runs and final spaces counted; line breaks stay.

    Text that looks like one of these marks is escaped too, so that two different texts never look alike.
    """
    literal = _marks().sub(lambda found: escape(found[0]), text)
    shown = escaped_invisible(literal).replace("\t", "⇥")
    return _hiding().sub(_counted, shown)


def visible_line(text: str) -> str:
    """The same on one line: a line break is shown as ⏎."""
    return visible(text).replace("\n", "⏎")


def _counted(found: Match[str]) -> str:
    piece = found[0]
    if piece[0] == " ":
        return f"«{len(piece):,} space{'s' * (len(piece) != 1)}»"
    marks = 0
    shown: list[str] = []
    for letter in piece:
        marks = marks + 1 if unicodedata.category(letter)[0] == "M" else 0
        shown.append(letter if marks <= _MOST_MARKS else f"\\u{ord(letter):04x}")
    return "".join(shown)


@cache
def _marks() -> Pattern[str]:
    """Text that looks like a mark of ours: the symbols, and a backslash at the start of an escape sequence."""
    import re

    return re.compile(r"[«»⇥⏎]|\\(?=x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})")


@cache
def _hiding() -> Pattern[str]:
    """Text that can hide: long runs of spaces, spaces at the end of a line, and letters with combining marks."""
    import re

    return re.compile(rf" {{{LONGEST_RUN_OF_SPACES + 1},}}|(?<=[^ \n]) +(?=\n|\Z)|[^\x00-\x7f]+")
