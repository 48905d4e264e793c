"""Cut excerpts out of a text, without quote marks and indentation."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from deputy.core.detect.folded_text import LIST_MARK, QUOTED_LINE, pattern

if TYPE_CHECKING:
    from deputy.core.detect.folded_text import FoldedText

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
