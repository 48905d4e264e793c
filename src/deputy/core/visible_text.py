"""Remove invisible characters from text; escape them in approvals and JSON."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import json

if TYPE_CHECKING:
    from re import Match, Pattern

_FORMATS = (
    r"\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    r"\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e007f"
)
"""Category Cf and the tag characters, without ZWJ and ZWNJ."""
_JOINERS = r"\u200c\u200d"
_SEPARATORS = r"\u2028\u2029"
_BLANKS = (
    r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u2d7f\u3164\ufe00-\ufe0f\uffa0\U0001107f\U00013441\U00013442"
    r"\U00016fe4\U0001d159\U000e0100-\U000e01ef"
)
"""Fillers, blank signs, joiners of one script and variation selectors: printable by category, but invisible."""

UNSEEN = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_FORMATS}{_SEPARATORS}{_BLANKS}{_JOINERS}]"
"""A pattern of one invisible character; line ends and tabs are visible."""


def without_invisible(text: str) -> str:
    """The text without control, format and direction characters; line ends, tabs and joiners stay."""
    if text.isascii():
        return text.translate(_ascii_controls())
    return _hidden().sub("", text)


def without_blanks(text: str) -> str:
    """The text without joiners, fillers and variation selectors."""
    return text if text.isascii() else _blank().sub("", text)


def escaped_invisible(text: str) -> str:
    r"""The text with every invisible character escaped (`\u202e`), for approvals; line ends and tabs stay.

    Also a mark of one script after an ASCII character, which many fonts do not show; accents stay.
    """
    if text.isascii() and text.isprintable():
        return text
    letters = set(text) - {"\n", "\t"}
    hidden = {letter for letter in letters if not letter.isprintable() or _blank().match(letter)}
    shown = _with_bare_marks_escaped(text, letters - hidden, hidden)
    return shown.translate({ord(letter): escape(letter) for letter in hidden})


def _with_bare_marks_escaped(text: str, letters: set[str], hidden: set[str]) -> str:
    from unicodedata import category, name

    marks = {letter for letter in letters if not letter.isascii() and category(letter) in ("Mn", "Me")}
    accents = {letter for letter in marks if name(letter).startswith("COMBINING ")}
    marks -= accents
    if not marks:
        return text
    shown: list[str] = []
    is_bare, between = True, marks | accents | hidden
    for letter in text:
        shown.append(escape(letter) if is_bare and letter in marks else letter)
        if letter not in between:
            is_bare = letter.isascii()
    return "".join(shown)


def visible_json(value: Any, *, indent: int = 0) -> bytes:
    """A value as JSON with format and control characters escaped."""
    return visible_json_of(json.format(json.encode(value), indent=indent) if indent else json.encode(value))


def visible_json_of(data: bytes) -> bytes:
    """Encoded JSON with format and control characters escaped."""
    if data.isascii() and b"\x7f" not in data:
        return data
    return _unseen().sub(_json_escape, data.decode()).encode()


def escape(letter: str) -> str:
    """One character as an escape sequence."""
    code = ord(letter)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(found: Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


@cache
def _ascii_controls() -> dict[int, None]:
    return {code: None for code in (*range(0x20), 0x7F) if chr(code) not in "\n\t"}


@cache
def _hidden() -> Pattern[str]:
    import re

    return re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_FORMATS}{_SEPARATORS}]+")


@cache
def _blank() -> Pattern[str]:
    import re

    return re.compile(f"[{_BLANKS}{_JOINERS}]")


@cache
def _unseen() -> Pattern[str]:
    """The characters to escape in JSON; encoded JSON has no C0 controls but line ends."""
    import re

    return re.compile(rf"[\x7f-\x9f{_FORMATS}{_JOINERS}{_SEPARATORS}]")
