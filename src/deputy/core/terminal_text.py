"""Text of models, files and other agents without what a terminal would obey and what a reader cannot see."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

from deputy.core.detect.visible import without_invisible

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
    """The text without terminal escapes, each removed whole, and invisible characters; line ends and tabs stay."""
    return without_invisible(_sequence().sub("", text))


def plain_data(value: Any) -> Any:
    """JSON data with every text in it made plain, names of fields too."""
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
