"""Requests in `<delegate>` blocks, read leniently: few of them are well-formed XML."""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING

from deputy.core.detect.folded_text import TextCursor, comments, fences, is_worded, passage, pattern, quotation_of
from deputy.core.detect.found_request import RequestDraft
from deputy.core.detect.model_routing import named_value

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from deputy.core.detect.folded_text import FoldedText

_NAME = "(?:delegate|DELEGATE)"
_ATTRIBUTES = r"""(?:\s++[\w:.-]++\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s"'<>=`]++))*+"""
# Capitalised or after a word it is a type parameter (List<Delegate>). A tag without valid attributes is documentation.
_TAG = rf"<(?:(/){_NAME}\s*+>|(?<!\w<){_NAME}(?=[\s/>])(?:({_ATTRIBUTES})\s*+(?:(/)>|(>)))?)"
_CLOSING, _EMPTY, _OPENING = 1, 3, 4  # the last matched group is the kind of the tag; none for documentation
_ATTRIBUTE = r"""\s([\w:.-]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'<>=`]++))"""
_ATTRIBUTES_READ = 20
_KNOWN = ("model", "agent", "tools", "timeout")
_LONGEST_SECONDS = 30 * 86_400
_NAMES = {
    "system-instructions": "system",
    "context": "context",
    "prompt": "prompt",
    "output": "output",
    "model": "model",
}
_PART = rf"(?<!`)<(/?)({'|'.join(_NAMES).replace('-', '[-_]')})(?=[\s/>])[^<>]*+>"
_ITEM = r"(?m)^(?:[-*+•]|\d{1,3}[.)]) +"
_MARKS = (
    ("<![CDATA[", ""),
    ("]]>", ""),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&quot;", '"'),
    ("&apos;", "'"),
    ("&amp;", "&"),
)
_SWITCHES = frozenset({"true", "false", "yes", "no", "on", "off", "none", "null"})
_QUOTES, _BLANKS, _LINE_ENDS = frozenset("\"'"), frozenset(" \t"), frozenset(("", "\n"))
_MENTIONS_PASSED = 8
_PARTS_READ = 500
_ITEMS_READ = 99


def find_blocks(page: FoldedText) -> Iterator[RequestDraft]:
    """The outermost `<delegate>` blocks of a page, also unclosed ones."""
    fenced, commented = fences(page), comments(page)
    for start, content, stop, end in _blocks(page):
        if content < 0 or not is_worded(page.text, content, stop) or commented.around(start):
            continue
        if end is not None:
            finding = _read(page, start, content, stop, end)
        elif page.starts_line(start):
            fence = fenced.around(start)
            limit = min(stop, fence[1]) if fence else stop
            finding = _read(page, start, content, limit, content + len(page.text[content:limit].rstrip()))
        else:
            continue
        if finding:
            yield finding


def _blocks(page: FoldedText) -> Iterator[tuple[int, int, int, int | None]]:
    """Start, start of content, stop of content, and end (None if unclosed) of each block."""
    closed, starts, contents = _pair_tags(page)
    at = 0
    for start, content, following in zip(starts, contents, [*starts[1:], len(page.text)], strict=False):
        while at < len(closed) and closed[at][0] < start:
            yield closed[at]
            at += 1
        stop = min(following, closed[at][0]) if at < len(closed) else following
        if content < stop:
            yield start, content, stop, None
    yield from closed[at:]


def _pair_tags(page: FoldedText) -> tuple[list[tuple[int, int, int, int]], list[int], list[int]]:
    """The outermost closed blocks, and the starts and ends (-1: documentation) of the unclosed tags."""
    text = page.text
    closed: list[tuple[int, int, int, int]] = []
    starts: list[int] = []
    contents: list[int] = []
    columns: list[int] = []
    has_ticks = "`" in text
    seen = ticks = 0
    for tag in pattern(_TAG).finditer(text):
        kind = tag.lastindex
        if kind == _EMPTY or (kind == _CLOSING and not starts):
            continue
        at, end = tag.span()
        before = text[at - 1 : at]
        if has_ticks:
            if (newline := text.rfind("\n", seen, at)) >= 0:
                seen, ticks = newline, 0
            ticks += text.count("`", seen, at)
            seen = at
        if ticks % 2 or (before in _QUOTES and text.startswith(before, end)):
            continue
        column = 0 if before in _LINE_ENDS else _column(page, at) if before in _BLANKS else -1
        if kind != _CLOSING:
            starts.append(at)
            contents.append(end if kind == _OPENING else -1)
            columns.append(column)
        elif starts:
            depth = _partner(columns, column)
            start, content = starts[-depth], contents[-depth]
            del starts[-depth:], contents[-depth:], columns[-depth:]
            while closed and closed[-1][0] > start:
                closed.pop()
            if content != at:
                closed.append((start, content, at, end))
    return closed, starts, contents


def _column(page: FoldedText, position: int) -> int:
    if page.text[position - 2 : position - 1].isalpha():  # a word is before it: the line need not be read
        return -1
    lead = page.lead(position)
    return -1 if lead is None else len(lead)


def _partner(columns: list[int], column: int) -> int:
    """How far back the opening tag of a closing tag is: the one in the same column, else the last."""
    if column >= 0:
        for depth in range(1, min(len(columns), _MENTIONS_PASSED) + 1):
            if columns[-depth] == column:
                return depth
    return 1


def _read(page: FoldedText, start: int, content: int, stop: int, end: int) -> RequestDraft | None:
    quotation = quotation_of(page.lead(start))

    def read(span: tuple[int, int]) -> str:
        text = passage(page, *span, quotation=quotation)
        for mark, plain in _MARKS:
            text = text.replace(mark, plain)
        return text.strip()

    def joined(name: str) -> str:
        return "\n\n".join(filter(None, map(read, parts.get(name, ()))))

    parts = _split(page, content, stop)
    rest = joined("")
    prompt = joined("prompt") if "prompt" in parts else rest or read((content, stop))
    if not is_worded(prompt) or prompt.lower() in _SWITCHES:
        return None
    if not page.starts_line(start) and len(prompt.split(maxsplit=1)) < 2:  # "between <delegate> and </delegate>"
        return None
    context = [item for span in parts.get("context", ()) for item in _items(read(span))]
    if "prompt" in parts and is_worded(rest):
        context.append(rest)
    attributes = _attributes(page, start, content)
    tools = tuple(filter(None, map(named_value, attributes.get("tools", "").replace(",", " ").split())))
    seconds = _seconds(attributes.get("timeout", ""))
    warnings = [
        f"the attribute {name!r:.40} is unknown; known: {', '.join(_KNOWN)}" for name in attributes.keys() - _KNOWN
    ]
    if attributes.get("timeout") and seconds is None:
        warnings.append(f"timeout={attributes['timeout']!r:.40} is not a number of seconds, so it is not used")
    return RequestDraft(
        pattern="xml",
        span=(start, end),
        prompt=prompt,
        model=named_value(attributes.get("model") or joined("model")),
        agent=named_value(attributes.get("agent")),
        tools=tools or None,
        timeout=seconds,
        warnings=tuple(sorted(warnings)),
        system=joined("system") or None,
        context=tuple(context),
        output=joined("output") or None,
    )


def _attributes(page: FoldedText, start: int, content: int) -> dict[str, str]:
    """The attributes of an opening tag; of two with one name the first counts."""
    found: dict[str, str] = {}
    for attribute in islice(pattern(_ATTRIBUTE).finditer(page.text, start, content), _ATTRIBUTES_READ):
        found.setdefault(attribute[1].lower(), attribute[attribute.lastindex or 1].strip())
    return found


def _seconds(text: str) -> float | None:
    """A number of seconds, such as `300` or `300s`."""
    number = text.removesuffix("s")
    if not number.replace(".", "", 1).isdecimal() or not number.isascii():
        return None
    return seconds if 0 < (seconds := float(number)) <= _LONGEST_SECONDS else None


def _split(page: FoldedText, start: int, end: int) -> dict[str, list[tuple[int, int]]]:
    """The spans of the parts of a block by name; text outside of all parts has the name `""`."""
    parts: dict[str, list[tuple[int, int]]] = {}
    tags = _Parts(page, start, end)
    for _ in range(_PARTS_READ):
        if (tag := tags.find(_PART, start)) is None:
            break
        name = tag[2].replace("_", "-")
        if tag[1]:  # closed but not opened: the text before it is the part
            parts.setdefault(_NAMES[name], []).append((start, tag.start()))
            start = tag.end()
            continue
        parts.setdefault("", []).append((start, tag.start()))
        start = tag.end()
        if not tag[0].endswith("/>"):
            closing = tags.find(rf"</{name.replace('-', '[-_]')}\s*+>", start)
            following = closing or tags.find(_PART, start)
            stop = following.start() if following else end
            parts.setdefault(_NAMES[name], []).append((start, stop))
            start = closing.end() if closing else stop
    parts.setdefault("", []).append((start, end))
    return parts


class _Parts:
    """The tags of the parts of a block, without those of nested blocks."""

    def __init__(self, page: FoldedText, start: int, end: int) -> None:
        self._page, self._end = page, end
        self._cursors: dict[str, TextCursor] = {}
        self._nested = _nested(page, start, end) if pattern(_TAG).search(page.text, start, end) else []

    def find(self, source: str, position: int) -> re.Match[str] | None:
        """The first tag of this form at or after the position."""
        cursor = self._cursors.setdefault(source, TextCursor(source, self._page.folded, self._end))
        while tag := cursor.after(position):
            index = bisect_right(self._nested, (tag.start(), self._end)) - 1
            if index < 0 or self._nested[index][1] <= tag.start():
                break
            position = self._nested[index][1]
        return tag


def _nested(page: FoldedText, start: int, end: int) -> list[tuple[int, int]]:
    """The outermost blocks inside a block."""
    spans: list[tuple[int, int]] = []
    opened: list[int] = []
    for tag in pattern(_TAG).finditer(page.text, start, end):
        if tag.lastindex == _OPENING:
            opened.append(tag.start())
        elif tag.lastindex == _CLOSING and opened:
            first = opened.pop()
            while spans and spans[-1][0] > first:
                spans.pop()
            spans.append((first, tag.end()))
    return spans


def _items(context: str) -> tuple[str, ...]:
    """The items of a list, or the whole text if it is not a list."""
    if not pattern(_ITEM).match(context):
        return (context,) if context else ()
    return tuple(filter(None, map(str.strip, pattern(_ITEM).split(context, maxsplit=_ITEMS_READ))))
