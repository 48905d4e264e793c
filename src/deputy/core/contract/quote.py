"""Show foreign values in messages: short, on one line, without control characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 80


def quoted(value: object, limit: int = LIMIT) -> str:
    """A value as a message shows it: a scalar, cut with `…`; of a list or an object only the type."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return one_line(value, limit) or '""'
        case int() if value.bit_length() > 64:
            return "a huge number"
        case int() | float():
            return repr(value)
        case _:
            return kind_of(value)


def one_line(text: str, limit: int = LIMIT) -> str:
    """The start of a text without invisible and control characters; line ends become spaces."""
    shown = text[: limit + 1]
    if not shown.isprintable():
        shown = "".join(letter if letter.isprintable() else " " * letter.isspace() for letter in shown)
    return shown if len(text) <= limit else f"{shown[: limit - 1]}…"


def joined(names: Sequence[object], separator: str = " → ", most: int = 8) -> str:
    """The first names, joined."""
    shown = separator.join(quoted(name, 40) for name in names[:most])
    return shown if len(names) <= most else f"{shown}{separator}…"


def kind_of(value: object) -> str:
    """The JSON type of a value, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return "a string" if is_unicode(value) else "a string that is not valid Unicode"
        case int() | float():
            return "a number"
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "something that is not JSON"


def is_unicode(text: str) -> bool:
    """Whether the text can be encoded as UTF-8: it has no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
