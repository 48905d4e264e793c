"""Read a Markdown TODO list: checkbox items, else plain items, each with the text indented below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.project_task import MAX_TITLE

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCES = ("```", "~~~")
_BULLETS = ("- ", "* ", "+ ")
_MARKS = ("**", "__", "`", "~~")


class Item(Struct, frozen=True, kw_only=True):
    """One item of a TODO list."""

    title: str
    text: str = ""
    heading: str = ""
    is_done: bool = False


class _Line(Struct, frozen=True, kw_only=True):
    indent: int
    text: str
    box: bool | None
    """Whether its checkbox is checked; None without a checkbox."""


def read_todo_list(text: str) -> tuple[Item, ...]:
    """The items with checkboxes, else all items; a nested item is text of the item above it."""
    return tuple(_items(text, boxed=True)) or tuple(_items(text, boxed=False))


def _items(text: str, *, boxed: bool) -> Iterator[Item]:
    heading = ""
    top: _Line | None = None
    below: list[str] = []
    fence = ""
    for raw in text.expandtabs(4).splitlines():
        stripped = raw.strip()
        if fence:
            fence = "" if stripped.startswith(fence) else fence
            below.append(raw)
            continue
        if stripped.startswith(_FENCES):
            fence = stripped[:3]
            below.append(raw)
            continue
        line = _line(raw)
        is_item = line is not None and (line.box is not None) == boxed
        if stripped.startswith("#") and raw == raw.lstrip():
            if top is not None:
                yield _item(top, below, heading)
            top, below, heading = None, [], stripped.lstrip("#").strip()
        elif line is not None and is_item and (top is None or line.indent <= top.indent):
            if top is not None:
                yield _item(top, below, heading)
            top, below = line, []
        elif stripped and top is not None and len(raw) - len(raw.lstrip()) <= top.indent:
            # A paragraph at the margin ends the list.
            yield _item(top, below, heading)
            top, below = None, []
        else:
            below.append(raw)
    if top is not None:
        yield _item(top, below, heading)


def _line(raw: str) -> _Line | None:
    body = raw.lstrip()
    indent = len(raw) - len(body)
    number, dot, rest = body.partition(". ")
    if body.startswith(_BULLETS):
        rest = body[2:]
    elif not (dot and number.isdecimal() and len(number) <= 4):
        return None
    rest = rest.strip()
    box = rest[:3].lower()
    if box in ("[ ]", "[x]") and (len(rest) == 3 or rest[3] == " "):
        return _Line(indent=indent, text=rest[3:].strip(), box=box == "[x]") if rest[3:].strip() else None
    return _Line(indent=indent, text=rest, box=None) if rest else None


def _item(line: _Line, below: list[str], heading: str) -> Item:
    title, rest = _cut(_bare(line.text))
    text = "\n".join(part for part in (rest, _dedented(below)) if part)
    return Item(title=title, text=text, heading=heading, is_done=bool(line.box))


def _bare(text: str) -> str:
    for mark in _MARKS:
        text = text.replace(mark, "")
    return " ".join(text.split()) or "untitled"


def _cut(title: str) -> tuple[str, str]:
    """A title that is too long is cut, and repeated whole in the text."""
    return (title, "") if len(title) <= MAX_TITLE else (f"{title[: MAX_TITLE - 1].rstrip()}…", title)


def _dedented(lines: list[str]) -> str:
    import textwrap

    return textwrap.dedent("\n".join(lines)).strip()
