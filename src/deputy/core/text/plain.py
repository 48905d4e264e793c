"""Text of models, files and other agents without what a terminal would obey."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from re import Pattern

MOST_HIDDEN = 4096
"""How long a sequence may be that disappears with all it says; a longer one loses only what a terminal would obey."""

_STRING = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])"
"""How a text for the terminal itself begins: OSC, DCS, SOS, PM and APC."""
_WORDS = rf"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]{{0,{MOST_HIDDEN}}}"
_COMMAND = r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}"
_ESCAPED = r"\x1b[ -/]{0,8}"


def plain(text: str) -> str:
    """The text without terminal escapes, each removed whole, and control characters; line ends and tabs stay."""
    return without_controls(_sequence().sub("", text))


def without_controls(text: str) -> str:
    """The text without control characters alone: whoever must approve it reads all that is there."""
    return text.translate(_controls())


class PlainStream:
    """Makes a text plain that comes in pieces, also where a sequence is split over them."""

    def __init__(self) -> None:
        self._held = ""
        """The beginning of a sequence whose end may come."""

    def feed(self, piece: str) -> str:
        """What can be shown by now."""
        text = self._held + piece
        begun = _unfinished().search(text, max(0, len(text) - MOST_HIDDEN - 3))
        end = len(text) if begun is None else begun.start()
        self._held = text[end:]
        return plain(text[:end])

    def finish(self) -> str:
        """What was held back for an end that did not come."""
        rest, self._held = self._held, ""
        return plain(rest)


@cache
def _sequence() -> Pattern[str]:
    """A whole sequence; of one that has no end only its beginning."""
    import re

    return re.compile(rf"{_STRING}{_WORDS}(?:\x07|\x9c|\x1b\\)|{_COMMAND}[@-~]|{_ESCAPED}[0-~]")


@cache
def _unfinished() -> Pattern[str]:
    """A sequence that the text ends in."""
    import re

    return re.compile(rf"(?:{_STRING}{_WORDS}\x1b?|{_COMMAND}|{_ESCAPED})\Z")


@cache
def _controls() -> dict[int, int | None]:
    removed = [*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029]
    return {code: None for code in removed if chr(code) not in "\n\t"}
