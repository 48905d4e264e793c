"""One pass over a text: find what may start a secret, decide within a bounded window, hide the value."""

from __future__ import annotations

import re
from functools import cache

from deputy.core.redaction.forms import LOOK_BACK, TRIGGER_PATTERNS, TRIGGERS, Found, compiled, find_form
from deputy.core.redaction.known import KnownFilter, KnownValues
from deputy.core.redaction.vendors import SHAPES, Shape

MARK = "[redacted]"
"""What replaces a secret."""

LOOK_AHEAD = 768
"""How much text after a trigger decides what it starts; a stream holds back no more than this and one word."""
_LONGEST_TRIGGER = 64
"""A trigger and the part of its key before it; neither contains a space."""

# A key does not start inside a word; the end of an escape (\n, \x3d, %3D, a terminal colour) is not part of a word,
# and in a URL of Telegram `bot` is before the key.
_KEY_START = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\x[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})"
    r"|(?<=%[0-9A-Fa-f]{2})|(?<=\[[0-9]m)|(?<=\[[0-9]{2}m)|(?<=/bot))"
)
_RARE_FIRST = '~|?&;zqxjkvw0123456789:=_-/.bgpfycmuldhrsnioat"e\\'


class RedactingStream:
    """Redacts a text that comes in chunks; the result does not depend on the chunks."""

    def __init__(self, known: KnownValues) -> None:
        self._filter = KnownFilter(known, MARK)
        self._context = ""
        self._held = ""
        self._value = ""
        """The pattern of the hidden value at the end of the text so far."""

    @property
    def held(self) -> int:
        """How many characters are held back, because they may become a secret."""
        return self._filter.held + len(self._held)

    def feed(self, chunk: str, *, final: bool = False) -> str:
        """The redacted text that can be shown after this chunk."""
        text = self._context + self._held + self._filter.feed(chunk, final=final)
        folded = fold(text)
        at = look_from = len(self._context)
        safe = len(text) if final else len(text) - LOOK_AHEAD
        shown: list[str] = []
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
            found = _find(text, trigger)
            look_from = trigger + 1
            if found is not None:
                shown += (text[at : found.start], MARK)
                at = look_from = found.end
                self._value = found.rest
        hold = len(text) if final else hold
        shown.append(text[at:hold])
        self._context, self._held = text[max(0, hold - LOOK_BACK) : hold], text[hold:]
        return "".join(shown)

    def flush(self) -> str:
        """The rest of the text."""
        return self.feed("", final=True)


def may_hold_secret(text: str) -> bool:
    """Whether a text has a trigger."""
    return _hints().search(fold(text)) is not None


def fold(text: str) -> str:
    """A text in lower case, of the same length."""
    return text.lower() if text.isascii() else text.replace("\u0130", "I").lower()


def _find(text: str, at: int) -> Found | None:
    """The secret that a trigger at this place starts, if it starts one."""
    for shape, pattern in _shapes_by_first().get(text[at], ()):
        start = at - shape.before_length
        if start >= 0 and text.startswith(shape.literal, at) and (found := compiled(pattern).match(text, start)):
            return Found(found.start(found.lastgroup or 0), found.end(), f"[{shape.alphabet}]*+")
    return find_form(text, at)


@cache
def _shapes_by_first() -> dict[str, list[tuple[Shape, str]]]:
    """The shapes and their patterns by the first character of the literal, longer literals first."""
    found: dict[str, list[tuple[Shape, str]]] = {}
    for shape in sorted(SHAPES, key=lambda shape: -len(shape.literal)):
        enough = f"(?=[{shape.alphabet}]{{{shape.least}}})" if shape.least else ""
        mixed = "" if shape.before or "key" in shape.rest else r"(?=[a-z_.+/=~|@-]{0,64}[0-9A-Z])"
        pattern = f"{_KEY_START}{shape.before}{re.escape(shape.literal)}{enough}{mixed}{shape.rest}"
        found.setdefault(shape.literal[0], []).append((shape, pattern))
    return found


def _match_end(pattern: str, text: str, at: int, end: int) -> int:
    found = compiled(pattern).match(text, at, end)
    return found.end() if found else at


def _word_start(text: str, end: int, least: int) -> int:
    """The start of the word before this place, as far as a trigger may reach back."""
    least = max(least, end - _LONGEST_TRIGGER)
    while end > least and not text[end - 1].isspace():
        end -= 1
    return end


def _next_trigger(folded: str, least: int) -> int | None:
    """The start of the next trigger in a lower-case text."""
    at = least
    while hint := _hints().search(folded, at):
        at = hint.start() + 1
        near = _triggers().search(folded, max(least, at - _LONGEST_TRIGGER), at + _LONGEST_TRIGGER)
        if near is not None:
            return near.start()
    return None


@cache
def _triggers() -> re.Pattern[str]:
    """One pattern that matches every trigger in lower-case text."""
    return re.compile("|".join([_one_of(sorted(_literals())), *_patterns()]), re.ASCII)


@cache
def _hints() -> re.Pattern[str]:
    """A faster pattern that matches inside every trigger: it stops only at the rarest letter of each."""
    by_letter: dict[str, list[str]] = {}
    for literal in sorted(_literals()):
        at = min(range(len(literal)), key=lambda index: _RARE_FIRST.index(literal[index]))
        rest = f"{re.escape(literal[at + 1 :])}(?<={re.escape(literal)})"
        by_letter.setdefault(literal[at], []).append(rest)
    branches = (f"{re.escape(letter)}(?:{'|'.join(rests)})" for letter, rests in by_letter.items())
    return re.compile("|".join([*branches, *_patterns()]), re.ASCII)


def _literals() -> set[str]:
    return {shape.literal.lower() for shape in SHAPES if not shape.trigger} | set(TRIGGERS)


def _patterns() -> list[str]:
    return [*TRIGGER_PATTERNS, *(shape.trigger for shape in SHAPES if shape.trigger)]


def _one_of(literals: list[str]) -> str:
    """A pattern for the shortest of these literals at a place, which reads each character once."""
    rests: dict[str, list[str]] = {}
    for literal in literals:
        rests.setdefault(literal[0], []).append(literal[1:])
    branches = (re.escape(first) + ("" if "" in rest else _one_of(rest)) for first, rest in rests.items())
    return f"(?:{'|'.join(branches)})"
