"""One pass over a text: find what may start a secret, decide within a bounded window, hide the value."""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import TYPE_CHECKING

from deputy.core.foreign_text import has_text, is_visible, unfinished, unseen
from deputy.core.redaction.forms import LOOK_BACK, TRIGGERS, Find, compiled
from deputy.core.redaction.known import KNOWN, Place
from deputy.core.redaction.vendors import SHAPES

if TYPE_CHECKING:
    from ahocorasick_rs import BytesAhoCorasick

    from deputy.core.redaction.known import KnownValues

MARK = "[redacted]"
"""What replaces a secret."""

LOOK_AHEAD = 768
"""How much text after a trigger decides what it starts; a stream holds back no more than this and one word."""
_MOST_UNSEEN = 64
"""How many invisible characters are kept at one place."""
_LONGEST_TRIGGER = 64
"""A trigger and the part of its key before it; neither contains a space."""


class RedactingStream:
    """Redacts a text that comes in chunks; the result does not depend on the chunks.

    Invisible characters, raw or escaped, are taken out before a text is judged, and put back beside what stays.
    """

    def __init__(self, known: KnownValues) -> None:
        self._known = known
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
        known = self._known.places(text, self._known_to)
        text = _masked(text, known) if known else text
        begun = len(text) + 1 if final else len(text) - self._known.begun(self._text)
        safe = len(text) if final else len(text) - LOOK_AHEAD
        certain = min(safe, begun - 1)
        at = self._value_end(text, self._at, certain)
        shown: list[str] = []
        for start, index, end in sorted(known + find_triggers(text, at)):
            if self._value or start >= begun or (index != KNOWN and start > safe):
                break
            if index == KNOWN:
                # A part of it may be hidden already.
                shown += (self._shown(at, start), MARK) if start >= at else ()
                at = max(at, end)
            elif start >= at and (found := _triggers()[1][index][2](text, start)):
                shown += (self._shown(at, found.start), MARK)
                self._value = found.rest
                at = self._value_end(text, found.end, certain)
        else:
            start = len(text)
        hold = at if self._value else max(at, min(begun, _word_start(text, start, at)))
        hold = len(text) + 1 if final else hold
        shown.append(self._shown(at, hold))
        known_to = min(hold, begun, *[start for start, _, end in known if end > hold])
        kept = max(0, min(hold - LOOK_BACK, known_to))
        self._text, self._at = text[kept:known_to] + self._text[known_to:], hold - kept
        self._known_to = known_to - kept
        if self._gaps:
            self._gaps = deque((place - kept, gap) for place, gap in self._gaps if place >= hold)
        return "".join(shown)

    def _value_end(self, text: str, at: int, certain: int) -> int:
        """The end of the hidden value so far; after its last character it is no longer open."""
        if not self._value:
            return at
        end = _match_end(self._value, text, at, len(text))
        if end > certain:
            return _match_end(self._value, text, at, max(at, certain))
        self._value = ""
        return end

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
            if has_text(found) or self._known.places(found[0]):
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


def _masked(text: str, known: list[Place]) -> str:
    """The text with a placeholder for each known value, so that forms see neither names nor ends in it."""
    characters = [*text]
    for start, _, end in known:
        characters[start:end] = "*" * (end - start)
    return "".join(characters)


def find_triggers(text: str, at: int = 0) -> list[Place]:
    """The places from here on where a secret may start."""
    automaton, triggers = _triggers()
    found = automaton.find_matches_as_indexes(text[at:].encode("ascii", "replace").lower(), overlapping=True)
    return [
        (at + start, index, at + end)
        for index, start, end in found
        if not (more := triggers[index][1]) or compiled(more).match(text, at + start)
    ]


@cache
def _triggers() -> tuple[BytesAhoCorasick, list[tuple[str, str, Find]]]:
    """All triggers, and an automaton that finds their literals."""
    from ahocorasick_rs import BytesAhoCorasick, Implementation

    triggers = [*((shape.literal.lower(), shape.trigger, shape.find) for shape in SHAPES), *TRIGGERS]
    literals = [literal.encode() for literal, _, _ in triggers]
    return BytesAhoCorasick(literals, implementation=Implementation.DFA), triggers


def _match_end(pattern: str, text: str, at: int, end: int) -> int:
    found = compiled(pattern).match(text, at, end)
    return found.end() if found else at


def _word_start(text: str, end: int, least: int) -> int:
    """The start of the word before this place, as far as a trigger may reach back."""
    word = f"{text[max(least, end - _LONGEST_TRIGGER) : end]}.".split()[-1]
    return end - len(word) + 1
