"""One pass over a text: find what may start a secret, decide within a bounded window, hide the value."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from deputy.core.redaction.forms import LOOK_BACK, TRIGGERS, Found, find_form
from deputy.core.redaction.values import compiled
from deputy.core.redaction.vendors import SHAPES

if TYPE_CHECKING:
    from deputy.core.redaction.vendors import Shape

MARK = "[redacted]"
"""What stands in place of a secret."""

LOOK_AHEAD = 768
"""How much text after a trigger decides what it starts; a stream holds back no more than this and one word."""
_LONGEST_TRIGGER = 64
"""A trigger and what belongs to its key before it; neither contains a space."""

# A key begins where no word goes on; the end of an escape (\n, \x3d, %3D, a terminal colour) belongs to no word.
_KEY_START = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\x[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})"
    r"|(?<=%[0-9A-Fa-f]{2})|(?<=\[[0-9]m)|(?<=\[[0-9]{2}m))"
)


class Scanner:
    """Hides secrets in a text that comes in chunks; the result does not depend on the chunks."""

    def __init__(self) -> None:
        self._context: str = ""
        self._held: str = ""
        self._value = ""
        """The pattern of the hidden value that the text so far ends in."""

    @property
    def held(self) -> int:
        """How many characters are held back."""
        return len(self._held)

    def feed(self, chunk: str, *, final: bool = False) -> str:
        """What may be shown now that this chunk has come."""
        text = self._context + self._held + chunk
        at = len(self._context)
        safe = len(text) if final else len(text) - LOOK_AHEAD
        shown: list[str] = []
        hold = -1
        look_from = at
        if not self._value and not may_hold_secret(text[max(0, at - _LONGEST_TRIGGER) :]):
            hold = len(text) if final else _word_start(text, len(text), at)
            self._context, self._held = text[max(0, hold - LOOK_BACK) : hold], text[hold:]
            return text[at:hold]
        folded = fold(text)
        while True:
            if self._value:
                end = _match_end(self._value, text, at, len(text))
                if end > safe:
                    at = hold = _match_end(self._value, text, at, max(at, safe))
                    break
                at = look_from = end
                self._value = ""
            trigger = _next_trigger(folded, look_from)
            if trigger is None or trigger > safe:
                hold = _word_start(text, len(text) if trigger is None else trigger, at)
                break
            found = find(text, trigger)
            look_from = trigger + 1
            if found is not None:
                shown += (text[at : found.start], MARK)
                at = look_from = found.end
                self._value = found.rest
        hold = len(text) if final else hold
        shown.append(text[at:hold])
        self._context, self._held = text[max(0, hold - LOOK_BACK) : hold], text[hold:]
        return "".join(shown)


def may_hold_secret(text: str) -> bool:
    """Whether anything in a text may start a secret."""
    return hints().search(fold(text)) is not None


def fold(text: str) -> str:
    """A text in lower case, of the same length."""
    return text.lower() if text.isascii() else text.replace("\u0130", "I").lower()


def find(text: str, at: int) -> Found | None:
    """The secret that a trigger at this place starts, if it starts one."""
    for shape, pattern in _shapes_by_first().get(text[at], ()):
        if text.startswith(shape.literal, at) and (found := _find_shape(text, at, shape, pattern)):
            return found
    return find_form(text, at)


def _find_shape(text: str, at: int, shape: Shape, pattern: str) -> Found | None:
    start = at - shape.before_length
    found = compiled(pattern).match(text, start) if start >= 0 else None
    if found is None:
        return None
    key = found.start("key") if "key" in found.groupdict() else start
    return Found(key, found.end(), f"[{shape.alphabet}]*+")


def _match_end(pattern: str, text: str, at: int, end: int) -> int:
    found = compiled(pattern).match(text, at, end)
    return found.end() if found else at


def _word_start(text: str, end: int, least: int) -> int:
    """Where the word before this place begins, as far as a trigger may reach back."""
    least = max(least, end - _LONGEST_TRIGGER)
    at = end
    while at > least and not text[at - 1].isspace():
        at -= 1
    return at


@cache
def _shapes_by_first() -> dict[str, tuple[tuple[Shape, str], ...]]:
    """The shapes and their patterns by the first character of the literal, longer literals first."""
    found: dict[str, list[tuple[Shape, str]]] = {}
    for shape in sorted(SHAPES, key=lambda shape: -len(shape.literal)):
        enough = f"(?=[{shape.alphabet}]{{{shape.least}}})" if shape.least else ""
        mixed = "" if shape.before or "key" in shape.rest else r"(?=[a-z_.+/=~|@-]{0,64}[0-9A-Z])"
        pattern = f"{_KEY_START}{shape.before}{re.escape(shape.literal)}{enough}{mixed}{shape.rest}"
        found.setdefault(shape.literal[0], []).append((shape, pattern))
    return {first: tuple(some) for first, some in found.items()}


def _next_trigger(folded: str, least: int) -> int | None:
    """Where the next trigger in a lower-case text starts."""
    at = least
    while hint := hints().search(folded, at):
        at = hint.start() + 1
        near = triggers().search(folded, max(least, at - _LONGEST_TRIGGER), at + _LONGEST_TRIGGER)
        if near is not None:
            return near.start()
    return None


@cache
def triggers() -> re.Pattern[str]:
    """One pattern that finds in lower-case text all places where a secret may start."""
    return re.compile("|".join([_one_of(sorted(_literals())), *_patterns()]), re.ASCII)


@cache
def hints() -> re.Pattern[str]:
    """A faster pattern that matches inside every trigger: it stops only at the rarest letter of each."""
    by_letter: dict[str, list[str]] = {}
    for literal in sorted(_literals()):
        at = min(range(len(literal)), key=lambda index: _RARE_FIRST.index(literal[index]))
        rest = f"{re.escape(literal[at + 1 :])}(?<={re.escape(literal)})"
        by_letter.setdefault(literal[at], []).append(rest)
    branches = (f"{re.escape(letter)}(?:{'|'.join(rests)})" for letter, rests in by_letter.items())
    return re.compile("|".join([*branches, *_patterns()]), re.ASCII)


_RARE_FIRST = '~|?&;zqxjkvw0123456789:=_-/.bgpfycmuldhrsnioat"e\\'


def _literals() -> set[str]:
    return {shape.literal.lower() for shape in SHAPES if not shape.trigger} | set(TRIGGERS)


def _patterns() -> list[str]:
    return [shape.trigger for shape in SHAPES if shape.trigger]


def _one_of(literals: list[str]) -> str:
    """A pattern for the shortest of these literals at a place, which looks at each character once."""
    rests: dict[str, list[str]] = {}
    for literal in literals:
        rests.setdefault(literal[0], []).append(literal[1:])
    branches = (re.escape(first) + ("" if "" in rest else _one_of(rest)) for first, rest in rests.items())
    return f"(?:{'|'.join(branches)})"
