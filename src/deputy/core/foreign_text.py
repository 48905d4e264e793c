"""Make foreign text safe: no terminal escapes, no invisible characters, no Markdown that fakes our headings."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from deputy.core.visible_text import UNSEEN, without_blanks, without_invisible

if TYPE_CHECKING:
    from collections.abc import Sequence
    from re import Match, Pattern

MOST_HIDDEN = 512
"""The longest sequence that is removed with its content; of a longer one only the control characters are removed."""

_STRING = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])"
"""The beginning of a string for the terminal: OSC, DCS, SOS, PM and APC."""
_WORDS = rf"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]{{0,{MOST_HIDDEN}}}"
_COMMAND = r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}"
_ESCAPED = r"\x1b[ -/]{0,8}"
_HEX = "[0-9a-fA-F]"
_SHOWN = bytes((*b"\t\n", *range(0x20, 0x7F)))
_QUOTED_ESCAPE = "(?:x|u00|U000000)1[bB]"
"""The escape character, escaped itself, after its backslash."""
_QUOTED_STRING = rf"{_QUOTED_ESCAPE}[\]PX^_][^\\\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]{{0,{MOST_HIDDEN}}}+"
_QUOTED_COMMAND = rf"{_QUOTED_ESCAPE}\[[0-?]{{0,64}}[ -/]{{0,8}}"


def plain(text: str) -> str:
    """The text without terminal escapes and invisible characters; line ends and tabs stay."""
    # The first test is the faster one; line ends and tabs fail it.
    if (text.isascii() and text.isprintable()) or _is_plain_ascii(text):
        return text
    return without_invisible(_sequence().sub("", text))


def unsplit(text: str) -> str:
    """The text without what could split a word unseen: invisible characters, raw or escaped (`\\u200b`), and blanks."""
    seen, at = "", 0
    for found in unseen(text):
        seen += text[at : found.start()]
        at = found.end()
    return seen + text[at:]


def unseen(text: str) -> list[Match[str]]:
    """What `unsplit` removes, in order; see `has_text`."""
    if _is_plain_ascii(text) and not ("\\" in text and _escape().search(text)):
        return []
    pattern = _invisible() if _unseen().search(text) else _quoted()
    return [found for found in pattern.finditer(text) if _is_unseen(found)]


def unfinished(text: str) -> int:
    """Where a sequence begins that the text does not finish."""
    begun = _unfinished().search(text, max(0, len(text) - MOST_HIDDEN - 32))
    return len(text) if begun is None else begun.start()


def is_visible(text: str) -> bool:
    """Whether `unsplit` removes nothing from a text, whatever follows it: plain ASCII without backslashes."""
    return "\\" not in text and _is_plain_ascii(text)


def _is_plain_ascii(text: str) -> bool:
    return text.isascii() and not text.encode().translate(None, _SHOWN)


def has_text(found: Match[str]) -> bool:
    """Whether a match is a sequence for the terminal with text inside."""
    groups = found.groupdict()
    return bool(groups.get("string") or groups["quoted"])


def _is_unseen(found: Match[str]) -> bool:
    """Whether a match is invisible; an escaped character may be visible."""
    if found["low"]:
        number = 0x10000 + (int(found["high"], 16) - 0xD800) * 0x400 + int(found["low"], 16) - 0xDC00
    elif found["code"]:
        number = int(found["code"], 16)
    else:
        return True
    return not without_blanks(without_invisible(chr(min(number, sys.maxunicode))))


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
        end = unfinished(text)
        self._held = text[end:]
        return plain(text[:end])

    def finish(self) -> str:
        """The text held back for an end that did not come."""
        rest, self._held = self._held, ""
        return plain(rest)


@cache
def _sequence() -> Pattern[str]:
    import re

    return re.compile(rf"{_STRING}{_WORDS}(?:\x07|\x9c|\x1b\\)|{_COMMAND}[@-~]|{_ESCAPED}[0-~]")


@cache
def _unseen() -> Pattern[str]:
    import re

    return re.compile(UNSEEN)


@cache
def _escape() -> Pattern[str]:
    """The beginning of an escaped character. One search: a text may be long."""
    import re

    return re.compile(r"\\[xuU]")


@cache
def _quoted() -> Pattern[str]:
    """What cannot be seen, escaped as Python or JSON does it; it begins with a letter, which makes the search fast."""
    import re

    pair = rf"u(?P<high>[dD][89abAB]{_HEX}{{2}})\\{{1,8}}u(?P<low>[dD][c-fC-F]{_HEX}{{2}})"
    code = rf"[xuU](?P<code>(?<=x){_HEX}{{2}}|(?<=u){_HEX}{{4}}|(?<=U){_HEX}{{8}})"
    string = rf"{_QUOTED_STRING}\\{{1,8}}(?:(?:x|u00|U000000)07|{_QUOTED_ESCAPE}\\{{1,2}})"
    return re.compile(rf"\\\\{{0,7}}(?:(?P<quoted>{string})|{_QUOTED_COMMAND}[@-~]|{pair}|{code})")


@cache
def _invisible() -> Pattern[str]:
    """The same, or raw."""
    import re

    string = rf"{_STRING}{_WORDS}(?:\x07|\x9c|\x1b\\)"
    return re.compile(rf"(?P<string>{string})|{_COMMAND}[@-~]|{_ESCAPED}[0-~]|{UNSEEN}|{_quoted().pattern}")


@cache
def _unfinished() -> Pattern[str]:
    import re

    high = rf"u[dD][89abAB]{_HEX}{{2}}(?:\\{{1,8}}(?:u{_HEX}{{0,3}})?)?"
    string = rf"{_QUOTED_STRING}(?:\\{{1,8}}(?:[xuU]{_HEX}{{0,8}}\\?)?)?"
    begun = rf"x{_HEX}?|u{_HEX}{{0,3}}|U{_HEX}{{0,7}}|{high}|{_QUOTED_ESCAPE}|{_QUOTED_COMMAND}|{string}"
    return re.compile(rf"(?:{_STRING}{_WORDS}\x1b?|{_COMMAND}|{_ESCAPED}|(?<!\x1b)\\{{1,8}}(?:{begun})?)\Z")


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
