"""A text and its folded copy of the same length, searched forward only, in linear time; and excerpts of it."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from sys import maxsize
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PLAIN = (
    ("\r\n", " \n"),
    ("\r", "\n"),
    ("\t", " "),
    ("\u00a0", " "),  # the spaces of French punctuation
    ("\u202f", " "),
    ("\ufeff", " "),
    ("\u2018", "'"),
    ("\u2019", "'"),
    ("\u2010", "-"),
    ("\u2011", "-"),
    ("\u0130", "i"),  # the only character whose lower case is longer than itself
)

QUOTED_LINE = r"[ >]*+"
LIST_MARK = r"(?:(?:[-*+•]|\d{1,3}[.)]) ++)"
HEADING = r"(?m)^[ >]{0,6}+(#{1,6}) "
BLANK_LINE = rf"\n{QUOTED_LINE}(?=\n)"
_LEAD = rf"{QUOTED_LINE}{LIST_MARK}?"
_FENCE = (
    rf"(?m)^{QUOTED_LINE}{LIST_MARK}?(`{{3,}}+(?=[^\n`]*+$)|~{{3,}}+)[^\n]*+"
    rf"(?:\n(?!{QUOTED_LINE}\1[`~]*+ *+$)[^\n]*+)*+(?P<end>)(?:\n[^\n]*+)?+"
)


@cache
def pattern(source: str) -> re.Pattern[str]:
    """A pattern, compiled on first use."""
    return re.compile(source)


def fold(text: str) -> str:
    """The text in lower case with plain spaces, hyphens, apostrophes and line ends; positions do not change."""
    for found, plain in _PLAIN:
        text = text.replace(found, plain)
    return text.lower()


def is_worded(text: str, start: int = 0, end: int | None = None) -> bool:
    """Whether the text has a letter: a task needs words."""
    return pattern(r"[^\W\d_]").search(text, start, len(text) if end is None else end) is not None


class FoldedText:
    """A text and its folded copy: search in `folded`, cut from `text`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = fold(text)

    def starts_line(self, position: int) -> bool:
        """Whether only indentation, quote marks and a list mark are before the position on its line."""
        return self.lead(position) is not None

    def lead(self, position: int) -> str | None:
        """The text before the position on its line if that is only indentation, quote marks and a list mark."""
        line = self.start_of_line(position, longest=40)
        found = None if line is None else pattern(_LEAD).fullmatch(self.folded, line, position)
        return found[0] if found else None

    def start_of_line(self, position: int, longest: int) -> int | None:
        """The start of the line, if it is at most `longest` characters before the position."""
        line = self.folded.rfind("\n", max(0, position - longest - 1), position) + 1
        return line if position - line <= longest else None


class TextCursor:
    """The next match of a pattern for growing positions; the text is searched only once."""

    def __init__(self, source: str, text: str, end: int | None = None) -> None:
        self._source = source
        self._text = text
        self._end = len(text) if end is None else end
        self._match: re.Match[str] | None = None
        self._is_spent = False

    def after(self, position: int) -> re.Match[str] | None:
        """The first match at or after the position."""
        if not self._is_spent and (self._match is None or self._match.start() < position):
            self._match = pattern(self._source).search(self._text, position, self._end)
            self._is_spent = self._match is None
        return self._match

    def start(self, position: int) -> int:
        """The start of the next match, or the end of the text."""
        match = self.after(position)
        return self._end if match is None else match.start()


class TextZones:
    """Spans of a text that do not overlap, queried at growing positions."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._spans = iter(spans)
        self._start = self._end = -1

    def around(self, position: int) -> tuple[int, int] | None:
        """The span that contains the position."""
        if self._end <= position:
            self._start, self._end = next((span for span in self._spans if span[1] > position), (maxsize, maxsize))
        return (self._start, self._end) if self._start <= position else None


def fences(page: FoldedText) -> TextZones:
    """The fenced code blocks."""
    if "```" not in page.folded and "~~~" not in page.folded:
        return TextZones(())
    return TextZones((found.start(), found.end("end")) for found in pattern(_FENCE).finditer(page.folded))


def comments(page: FoldedText) -> TextZones:
    """The HTML comments."""
    return TextZones(_comments(page.text))


def _comments(text: str) -> Iterator[tuple[int, int]]:
    start = text.find("<!--")
    while start >= 0 and (end := text.find("-->", start + 4)) >= 0:
        yield start, end + 3
        start = text.find("<!--", end)


_INDENT = r"\n([ \t]*+)(?=\S)"
_LINES_JUDGED = 200
_SECTION = r"[ >]{0,6}+#{1,6} | *+(?:---|\*\*\*|___)"
_END_OF_BLOCK = rf"\n(?={QUOTED_LINE}\n|{_SECTION})"
_TO_NEXT_BLOCK = rf"(?:\n{QUOTED_LINE}(?=\n))++\n(?!{_SECTION})"
_FENCED = rf"{QUOTED_LINE}(?P<fence>```|~~~)[^\n]*+(?:\n(?!{QUOTED_LINE}(?P=fence))[^\n]*+)*+(?:\n[^\n]*+)?"
_LISTED = rf"(?:  ++(?=\S)|{QUOTED_LINE}{LIST_MARK})[^\n]*+(?:\n(?!{QUOTED_LINE}\n|{_SECTION})[^\n]*+)*+"
_MORE_ITEMS = rf"(?:{_TO_NEXT_BLOCK}{_LISTED})*+"
_HAS_LIST = rf"(?m)^{QUOTED_LINE}{LIST_MARK}"
_ANNOUNCEMENTS = 20


def passage(page: FoldedText, start: int, end: int, *, quotation: str = "", column: int = 80) -> str:
    """The text from start to end with plain line ends, without quotation marks and indentation (up to a column)."""
    text = page.text[start:end].replace("\r\n", "\n").replace("\r", "\n")
    if "\n" in text:
        text = _dedent(_unquote(text, quotation), column)
    return text.strip()


def quotation_of(lead: str | None) -> str:
    """The prefix of quoted lines, given the start of one of them: `> `, perhaps indented."""
    marks, mark, _ = (lead or "").rpartition(">")
    return f"{marks}{mark} " if mark else ""


def reach(page: FoldedText, start: int, end: int) -> int:
    """The end of the paragraph that starts here, with the list or code after its colon."""
    folded = page.folded
    for _ in range(_ANNOUNCEMENTS):
        stop = _end_of_block(folded, start, end)
        if pattern(_HAS_LIST).search(folded, start, stop):
            items = pattern(_MORE_ITEMS).match(folded, stop, end)
            return items.end() if items else stop
        following = pattern(_TO_NEXT_BLOCK).match(folded, stop, end)
        if following is None or not folded[max(start, stop - 80) : stop].rstrip(" *_").endswith(":"):
            return stop
        start = following.end()
    return start


def _end_of_block(folded: str, start: int, end: int) -> int:
    if fenced := pattern(_FENCED).match(folded, start, end):
        return fenced.end()
    found = pattern(_END_OF_BLOCK).search(folded, start, end)
    return found.start() if found else end


def _unquote(text: str, quotation: str) -> str:
    if not quotation:
        return text
    text, blank = text.replace(f"\n{quotation}", "\n"), f"\n{quotation.rstrip()}\n"
    return text.replace(blank, "\n\n").replace(blank, "\n\n")  # twice: neighbouring lines share a line end


def _dedent(text: str, column: int) -> str:
    # One replacement for the whole text is fast for many lines.
    indents = [found[1] for found in islice(pattern(_INDENT).finditer(text), _LINES_JUDGED)]
    indent = min(indents, key=len, default="")[:column]
    return text.replace("\n" + indent, "\n") if indent else text
