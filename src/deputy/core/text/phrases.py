"""The notation of the phrase tables: plain words, `[a|the]` for words that may be missing, `to|for` for a choice."""

from __future__ import annotations

import re
from functools import cache

# Words of a phrase may be wrapped onto the next line, quoted there, and set in bold or code.
GAP = r"[*_`]*+ *+\n?(?<=\s)[ >*_`]*+"


def words(table: str) -> frozenset[str]:
    """A table of words, written as one text."""
    return frozenset(table.split())


@cache
def any_of(phrases: tuple[str, ...]) -> str:
    """The source of one pattern that finds any of these phrases in a folded text, as whole words."""
    sources = [source for phrase in phrases for source in _sources(phrase)]
    return rf"(?:{'|'.join(map(_at_word, sources))})(?!\w)" if sources else r"(?!)"


def is_phrase(phrase: str) -> bool:
    """Whether this is a phrase of the notation: it starts with a word that must be there."""
    return not phrase.isspace() and phrase.lstrip()[:1] not in {"", "[", "|"}


def _at_word(source: str) -> str:
    # The check follows the first letter, so that the search can skip to first letters fast.
    first = source[0]
    return rf"{first}(?<!\w{first}){source[1:]}" if first.isalnum() else rf"(?<!\w){source}"


def _sources(phrase: str) -> list[str]:
    """The phrase as patterns, one for each choice of its first word."""
    first, *words = phrase.lower().split()
    rest = "".join(
        f"(?:{GAP}{_choice(word.strip('[]'))})?" if word[0] == "[" else GAP + _choice(word) for word in words
    )
    return [_choice(one) + rest for one in first.split("|")]


def _choice(word: str) -> str:
    # A hyphen may be missing or a space in the text: sub-agent, subagent, sub agent.
    choices = [re.escape(one).replace(r"\-", "[- ]?") for one in word.split("|") if one]
    return choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})"
