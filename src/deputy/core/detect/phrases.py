"""The notation of the phrase tables: words, `[a|the]` for optional words, `to|for` for a choice."""

from __future__ import annotations

import re
from functools import cache
from itertools import takewhile

from deputy.core.detect.folded_text import fold

# A phrase may continue on the next line, quoted there, and in bold or code.
GAP = r"[*_`]*+ *+\n?(?<=\s)[ >*_`]*+"


def words(table: str) -> frozenset[str]:
    """A set of words, written as one text."""
    return frozenset(table.split())


@cache
def any_of(phrases: tuple[str, ...]) -> str:
    """The source of one pattern that matches any of these phrases in a folded text, as whole words."""
    rests: dict[str, list[str]] = {}
    for phrase in phrases:
        first, *others = fold(phrase).split()
        for word in first.split("|"):
            rests.setdefault(_choice(word), []).append("".join(map(_further, others)))
    sources = (f"{_at_word(first)}(?:{'|'.join(rest)})" for first, rest in rests.items())
    return rf"(?:{'|'.join(sources)})(?!\w)" if rests else r"(?!)"


def is_phrase(phrase: str) -> bool:
    """Whether a phrase follows the notation: the first word is not optional, and brackets have one word or a choice."""
    first, *others = phrase.split() or [""]
    return _is_word(first) and all(_is_word(word[1:-1] if word[0] + word[-1] == "[]" else word) for word in others)


def _is_word(word: str) -> bool:
    return all(word.split("|")) and "[" not in word and "]" not in word


def _at_word(source: str) -> str:
    # The look-behind is after the first letters, so that the regex engine can skip to them.
    letters = "".join(takewhile(str.isalnum, source[:3]))
    return rf"{letters}(?<!\w{letters}){source[len(letters) :]}"


def _further(word: str) -> str:
    return f"(?:{GAP}{_choice(word[1:-1])})?+" if word.startswith("[") else GAP + _choice(word)


def _choice(word: str) -> str:
    # A hyphen matches nothing or a space too: sub-agent, subagent, sub agent.
    choices = [re.escape(one).replace(r"\-", r"[-\s]?") for one in word.split("|")]
    return choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})"
