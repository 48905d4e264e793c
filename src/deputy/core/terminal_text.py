"""Remove terminal escapes and invisible characters from foreign text."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

from deputy.core.detect.visible import without_invisible

if TYPE_CHECKING:
    from re import Pattern

MOST_HIDDEN = 4096
"""The longest sequence that is removed with its content; of a longer one only the control characters are removed."""

_STRING = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])"
"""The beginning of a string for the terminal: OSC, DCS, SOS, PM and APC."""
_WORDS = rf"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]{{0,{MOST_HIDDEN}}}"
_COMMAND = r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}"
_ESCAPED = r"\x1b[ -/]{0,8}"


def plain(text: str) -> str:
    """The text without terminal escapes and invisible characters; line ends and tabs stay."""
    return without_invisible(_sequence().sub("", text))


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
        """The beginning of an unfinished sequence."""

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
def _sequence() -> Pattern[str]:
    """Matches a whole sequence, or the beginning of one without an end."""
    import re

    return re.compile(rf"{_STRING}{_WORDS}(?:\x07|\x9c|\x1b\\)|{_COMMAND}[@-~]|{_ESCAPED}[0-~]")


@cache
def _unfinished() -> Pattern[str]:
    """Matches an unfinished sequence at the end of the text."""
    import re

    return re.compile(rf"(?:{_STRING}{_WORDS}\x1b?|{_COMMAND}|{_ESCAPED})\Z")
