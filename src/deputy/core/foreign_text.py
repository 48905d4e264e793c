"""Make foreign text safe: no terminal escapes, no invisible characters, no Markdown that fakes our headings."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from deputy.core.visible_text import without_blanks, without_invisible

if TYPE_CHECKING:
    from collections.abc import Sequence
    from re import Match, Pattern

MOST_HIDDEN = 4096
"""The longest sequence that is removed with its content; of a longer one only the control characters are removed."""

_STRING = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])"
"""The beginning of a string for the terminal: OSC, DCS, SOS, PM and APC."""
_WORDS = rf"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]{{0,{MOST_HIDDEN}}}"
_COMMAND = r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}"
_ESCAPED = r"\x1b[ -/]{0,8}"


def plain(text: str) -> str:
    """The text without terminal escapes and invisible characters; line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return without_invisible(_sequence().sub("", text))


def unsplit(text: str) -> str:
    """The text without what could split a word unseen: invisible characters, raw or escaped (`\\u200b`), and blanks."""
    raw = _escaped().sub(_unescaped, text) if "\\" in text else text
    is_visible = raw.isascii() and raw.replace("\n", "").replace("\t", "").isprintable()
    return raw if is_visible else without_blanks(plain(raw))


def _unescaped(found: Match[str]) -> str:
    """The character of an escape sequence if it is invisible, else the sequence."""
    high, low, code = found.groups()
    number = int(code, 16) if code else 0x10000 + (int(high, 16) - 0xD800) * 0x400 + int(low, 16) - 0xDC00
    letter = chr(min(number, sys.maxunicode))
    return found[0] if without_blanks(without_invisible(letter)) else letter


def plain_data(value: Any) -> Any:
    """JSON data with every string made plain, including field names."""
    match value:
        case str():
            return plain(value)
        case dict():
            return {plain(name): plain_data(item) for name, item in cast("dict[str, Any]", value).items()}
        case list() | tuple():
            return [plain_data(item) for item in cast("list[Any]", value)]
        case _:
            return value


class PlainStream:
    """Makes a stream of text plain, even if a sequence is split over pieces."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """The text that can be shown now."""
        text = self._held + piece
        begun = _unfinished().search(text, max(0, len(text) - MOST_HIDDEN - 3))
        end = len(text) if begun is None else begun.start()
        self._held = text[end:]
        return plain(text[:end])

    def finish(self) -> str:
        """The text held back for an end that did not come."""
        rest, self._held = self._held, ""
        return plain(rest)


@cache
def _escaped() -> Pattern[str]:
    """A character as Python or JSON escapes it; JSON writes some as a pair."""
    import re

    pair = r"u(d[89ab][0-9a-f]{2})\\{1,8}u(d[c-f][0-9a-f]{2})"
    code = r"((?-i:(?<=x))[0-9a-f]{2}|(?-i:(?<=u))[0-9a-f]{4}|(?-i:(?<=U))[0-9a-f]{8})"
    return re.compile(rf"(?i)\\{{1,8}}(?:{pair}|[xu]{code})")


@cache
def _sequence() -> Pattern[str]:
    import re

    return re.compile(rf"{_STRING}{_WORDS}(?:\x07|\x9c|\x1b\\)|{_COMMAND}[@-~]|{_ESCAPED}[0-~]")


@cache
def _unfinished() -> Pattern[str]:
    import re

    return re.compile(rf"(?:{_STRING}{_WORDS}\x1b?|{_COMMAND}|{_ESCAPED})\Z")


# --- Markdown ---------------------------------------------------------------------------------------------------------

_DEEPEST = 3
"""The deepest level of our own headings."""
_FENCES = ("```", "~~~")
_INDENTED = 4
"""From this indent on, a line is code, neither a heading nor a fence."""
_SWALLOWING = {
    "<!--": "-->",
    "<script": "</script>",
    "<style": "</style>",
    "<pre": "</pre>",
    "<textarea": "</textarea>",
    "<?": "?>",
    "<![cdata[": "]]>",
}
"""Openings that turn the following text into hidden HTML, with their ends."""


def kept_apart(text: str, titles: Sequence[str]) -> str:
    """The text with fake headings of these titles escaped, and open blocks closed."""
    # Remove invisible characters first: they could hide a heading from the check.
    text = plain(text.replace("\r\n", "\n").replace("\r", "\n"))
    lowered = text.lower()
    last = {opening: lowered.rfind(closing) for opening, closing in _SWALLOWING.items()}
    lines: list[str] = []
    fence, position = "", 0
    for line in text.split("\n"):
        body = line.lstrip(" ")
        margin = line[: len(line) - len(body)]
        if len(margin) < _INDENTED:
            fence = _fence_after(fence, body)
            opening = next(filter(body.lower().startswith, _SWALLOWING), "") if not fence else ""
            is_harmful = _is_like(body, titles) or (opening and last[opening] < position)
            body = f"\\{body}" if is_harmful else body
        lines.append(f"{margin}{body}")
        position += len(line) + 1
    return "\n".join((*lines, fence) if fence else lines)


def _fence_after(fence: str, body: str) -> str:
    """The marks that close the current fence after this line; "" outside of a fence."""
    if not fence:
        return _marks(body) if body.startswith(_FENCES) else ""
    is_closing = body.startswith(fence) and not body.strip().strip(fence[0])
    return "" if is_closing else fence


def _marks(body: str) -> str:
    """The marks that open a fence; a line with more backticks later opens none."""
    mark = body[0]
    rest = body.lstrip(mark)
    return "" if mark == "`" and "`" in rest else mark * (len(body) - len(rest))


def _is_like(body: str, titles: Sequence[str]) -> bool:
    bare = body.lstrip("#")
    if not 0 < len(body) - len(bare) <= _DEEPEST:
        return False
    return bare.lstrip().startswith(tuple(titles))
