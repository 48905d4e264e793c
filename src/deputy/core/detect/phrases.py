"""The notation of the phrase tables: plain words, `[a|the]` for words that may be missing, `to|for` for a choice."""

from __future__ import annotations

import re
from functools import cache
from itertools import takewhile

from deputy.core.detect.folded_text import fold

# Words of a phrase may be wrapped onto the next line, quoted there, and set in bold or code.
GAP = r"[*_`]*+ *+\n?(?<=\s)[ >*_`]*+"


def words(table: str) -> frozenset[str]:
    """A table of words, written as one text."""
    return frozenset(table.split())


@cache
def any_of(phrases: tuple[str, ...]) -> str:
    """The source of one pattern that finds any of these phrases in a folded text, as whole words."""
    rests: dict[str, list[str]] = {}
    for phrase in phrases:
        first, *others = fold(phrase).split()
        for word in first.split("|"):
            rests.setdefault(_choice(word), []).append("".join(map(_further, others)))
    sources = (f"{_at_word(first)}(?:{'|'.join(rest)})" for first, rest in rests.items())
    return rf"(?:{'|'.join(sources)})(?!\w)" if rests else r"(?!)"


def is_phrase(phrase: str) -> bool:
    """Whether this follows the notation: the first word must be there, and brackets hold one word or a choice."""
    first, *others = phrase.split() or [""]
    return _is_word(first) and all(_is_word(word[1:-1] if word[0] + word[-1] == "[]" else word) for word in others)


def _is_word(word: str) -> bool:
    return all(word.split("|")) and "[" not in word and "]" not in word


def _at_word(source: str) -> str:
    # The check follows the first letters, so that the search can skip to them fast.
    letters = "".join(takewhile(str.isalnum, source[:3]))
    return rf"{letters}(?<!\w{letters}){source[len(letters) :]}"


def _further(word: str) -> str:
    return f"(?:{GAP}{_choice(word[1:-1])})?+" if word.startswith("[") else GAP + _choice(word)


def _choice(word: str) -> str:
    # A hyphen may be missing or a space in the text: sub-agent, subagent, sub agent.
    choices = [re.escape(one).replace(r"\-", r"[-\s]?") for one in word.split("|")]
    return choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})"
