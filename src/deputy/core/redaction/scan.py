"""One pass over a text: find what may start a secret, decide within a bounded window, hide the value."""

from __future__ import annotations

import re
from collections import deque
from functools import cache
from typing import TYPE_CHECKING

from deputy.core.foreign_text import has_text, is_visible, unfinished, unseen
from deputy.core.redaction.forms import LOOK_BACK, TRIGGER_PATTERNS, TRIGGERS, Found, compiled, find_form
from deputy.core.redaction.vendors import SHAPES, Shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jsonschema_rs import Validator

    from deputy.core.redaction.known import KnownValues

MARK = "[redacted]"
"""What replaces a secret."""

LOOK_AHEAD = 768
"""How much text after a trigger decides what it starts; a stream holds back no more than this and one word."""
_MOST_UNSEEN = 64
"""How many invisible characters are kept at one place."""
_FEW = 32 * 1024
"""Up to so many characters literals are searched one by one; then it is worth loading an engine that is faster."""
_MANY = 512 * 1024
"""After so many characters it is worth compiling the patterns of all triggers for short texts too."""
EACH = 128
"""What a text counts besides its characters: each literal is searched once more."""
_SHORT = 512
"""Up to so many characters every trigger of a text is searched so; each search reads the rest of it again."""
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
    """Redacts a text that comes in chunks; the result does not depend on the chunks.

    Invisible characters, raw or escaped, are taken out before a text is judged, and put back beside what stays.
    """

    def __init__(self, known: KnownValues, *, scanned: int = 0) -> None:
        self._known = known
        self._scanned = scanned
        self._text = ""
        """The text that was judged but may be needed again, and the text held back."""
        self._at = 0
        """Where the text held back begins."""
        self._known_to = 0
        """Up to here known values are masked."""
        self._gaps: deque[tuple[int, str]] = deque()
        """Invisible characters in the text held back, each with its place."""
        self._raw = ""
        """The beginning of an escape sequence."""
        self._value = ""
        """The pattern of the hidden value at the end of the text so far."""

    @property
    def held(self) -> int:
        """How many characters are held back, because they may become a secret."""
        return len(self._raw) + len(self._text) - self._at

    def feed(self, chunk: str, *, final: bool = False) -> str:
        """The redacted text that can be shown after this chunk."""
        text = self._text = self._text + self._seen(chunk, final)
        self._scanned += len(chunk) + EACH
        known = sorted(self._known.spans(text, self._known_to), reverse=True)
        text = _masked(text, reversed(known)) if known else text
        folded = fold(text)
        begun = len(text) + 1 if final else len(text) - self._known.begun(self._text)
        at = look_from = self._at
        safe = len(text) if final else len(text) - LOOK_AHEAD
        shown: list[str] = []
        is_clean = _is_worth_loading(self._scanned) and not may_hold_secret(text[at:], scanned=self._scanned)
        trigger: int | None = None if is_clean else -1
        while True:
            if self._value:
                end = _match_end(self._value, text, at, len(text))
                if end > safe or end >= begun:
                    at = hold = _match_end(self._value, text, at, max(at, safe))
                    break
                at = look_from = end
                self._value = ""
            _drop_passed(known, at)
            if trigger is not None and trigger < look_from:
                trigger = _next_trigger(folded, look_from, self._scanned)
            if known and known[-1][0] <= (len(text) if trigger is None else trigger):
                start, end = known.pop()
                # A part of it may be hidden already.
                shown += (self._shown(at, start), MARK) if start >= at else ()
                at = look_from = end
                continue
            if trigger is None or trigger > safe or trigger >= begun:
                hold = min(begun, _word_start(text, len(text) if trigger is None else trigger, at))
                break
            found = _find(text, trigger)
            look_from = trigger + 1
            if found is not None:
                shown += (self._shown(at, found.start), MARK)
                at = look_from = found.end
                self._value = found.rest
        hold = len(text) + 1 if final else max(at, hold)
        shown.append(self._shown(at, hold))
        _drop_passed(known, hold)
        known_to = min(hold, begun, known[-1][0] if known else hold)
        kept = max(0, min(hold - LOOK_BACK, known_to))
        self._text, self._at = text[kept:known_to] + self._text[known_to:], hold - kept
        self._known_to = known_to - kept
        if self._gaps:
            self._gaps = deque((place - kept, gap) for place, gap in self._gaps if place >= hold)
        return "".join(shown)

    def flush(self) -> str:
        """The rest of the text."""
        return self.feed("", final=True)

    def _seen(self, chunk: str, final: bool) -> str:
        """The chunk without its invisible characters, which become gaps."""
        text = self._raw + chunk
        if is_visible(text):
            self._raw = ""
            return text
        end = len(text) if final else unfinished(text)
        self._raw, at, place = text[end:], 0, len(self._text)
        parts: list[str] = []
        for found in unseen(text[:end]):
            parts.append(text[at : found.start()])
            place += found.start() - at
            at = found.end()
            # Text inside a sequence for the terminal would not be judged.
            if has_text(found) or self._known.spans(found[0]):
                continue
            before = self._gaps.pop()[1] if self._gaps and self._gaps[-1][0] == place else ""
            self._gaps.append((place, before + found[0] if len(before) < _MOST_UNSEEN else before))
        return "".join((*parts, text[at:end]))

    def _shown(self, start: int, end: int) -> str:
        """A part of the text with the invisible characters in it."""
        if not self._gaps:
            return self._text[start:end]
        parts: list[str] = []
        while self._gaps and self._gaps[0][0] < end:
            place, gap = self._gaps.popleft()
            if place >= start:
                parts += (self._text[start:place], gap)
                start = place
        return "".join((*parts, self._text[start:end]))


def _drop_passed(known: list[tuple[int, int]], at: int) -> None:
    while known and known[-1][1] <= at:
        known.pop()


def _masked(text: str, known: Iterable[tuple[int, int]]) -> str:
    """The text with a placeholder for each known value, so that forms see neither names nor ends in it."""
    parts: list[str] = []
    at = 0
    for start, end in known:
        if end > at:
            parts += (text[at:start], "*" * (end - max(start, at)))
            at = end
    return "".join((*parts, text[at:]))


def may_hold_secret(text: str, *, scanned: int = 0) -> bool:
    """Whether a text has a trigger; `scanned` is how many characters were read before and with it."""
    folded = fold(text)
    if not _is_worth_loading(scanned):
        return _first_trigger(folded, 0) is not None
    if text.isascii():
        return _loaded_triggers().is_valid(folded)
    return _next_trigger(folded, 0, scanned) is not None


def _is_worth_loading(scanned: int) -> bool:
    return scanned > _FEW or bool(_loaded_triggers.cache_info().currsize)


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


def _next_trigger(folded: str, least: int, scanned: int) -> int | None:
    """The start of the next trigger in a lower-case text."""
    if len(folded) - least <= _SHORT and scanned <= _MANY:
        return _first_trigger(folded, least)
    at = least
    while hint := _hints().search(folded, at):
        at = hint.start() + 1
        near = _triggers().search(folded, max(least, at - _LONGEST_TRIGGER), at + _LONGEST_TRIGGER)
        if near is not None:
            return near.start()
    return None


def _first_trigger(folded: str, least: int) -> int | None:
    """The same without a pattern of all triggers, which takes longer to compile than a short text to read."""
    starts = [at for literal in _literals() if (at := folded.find(literal, least)) >= 0]
    for sign, pattern in _patterns():
        if folded.find(sign, least) >= 0 and (found := compiled(pattern).search(folded, least)):
            starts.append(found.start())
    return min(starts, default=None)


@cache
def _triggers() -> re.Pattern[str]:
    """One pattern that matches every trigger in lower-case text."""
    return re.compile("|".join([_one_of(_literals()), *(pattern for _, pattern in _patterns())]), re.ASCII)


@cache
def _hints() -> re.Pattern[str]:
    """A faster pattern that matches inside every trigger: it stops only at the rarest letter of each."""
    by_letter: dict[str, list[str]] = {}
    for literal in _literals():
        at = min(range(len(literal)), key=lambda index: _RARE_FIRST.index(literal[index]))
        rest = f"{re.escape(literal[at + 1 :])}(?<={re.escape(literal)})"
        by_letter.setdefault(literal[at], []).append(rest)
    branches = (f"{re.escape(letter)}(?:{'|'.join(rests)})" for letter, rests in by_letter.items())
    return re.compile("|".join([*branches, *(pattern for _, pattern in _patterns())]), re.ASCII)


@cache
def _loaded_triggers() -> Validator:
    """The same pattern as `_triggers`, for Rust's engine."""
    from jsonschema_rs import RegexOptions, validator_for

    either = "|".join([*map(re.escape, _literals()), *(pattern for _, pattern in _patterns())])
    return validator_for({"pattern": either}, pattern_options=RegexOptions())


@cache
def _literals() -> tuple[str, ...]:
    return tuple(sorted({shape.literal.lower() for shape in SHAPES if not shape.trigger}.union(TRIGGERS)))


@cache
def _patterns() -> tuple[tuple[str, str], ...]:
    """The triggers that are patterns, each after a sign that is in every text that it matches."""
    return (*TRIGGER_PATTERNS, *((shape.literal.lower(), shape.trigger) for shape in SHAPES if shape.trigger))


def _one_of(literals: Iterable[str]) -> str:
    """A pattern for the shortest of these literals at a place, which reads each character once."""
    rests: dict[str, list[str]] = {}
    for literal in literals:
        rests.setdefault(literal[0], []).append(literal[1:])
    branches = (re.escape(first) + ("" if "" in rest else _one_of(rest)) for first, rest in rests.items())
    return f"(?:{'|'.join(branches)})"
