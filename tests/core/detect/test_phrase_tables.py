"""The notation of the phrase tables."""

from __future__ import annotations

import re

import pytest
from tests.support.every_case import every_case

from deputy.core.detect.folded_text import fold
from deputy.core.detect.phrase_tables import any_of, is_phrase


def finds(phrase: str, text: str) -> bool:
    return re.search(any_of((phrase,)), fold(text)) is not None


@every_case(
    ("phrase", "text"),
    [
        ("use [a|the] sub-agent", "use subagent"),
        ("use [a|the] sub-agent", "Use THE sub agent"),
        ("use [a|the] sub-agent", "use a\n   > sub-agent"),
        ("use [a|the] sub-agent", "use **a** `sub\u2011agent`"),
        ("run|execute in isolation", "execute in isolation!"),
        ("d'utiliser", "d’utiliser"),
        ("d’utiliser", "d'utiliser"),
        ("a.b (c", "a.b (c"),
    ],
)
def test_a_phrase_is_found(phrase: str, text: str) -> None:
    assert finds(phrase, text)


@every_case(
    ("phrase", "text"),
    [
        ("use [a|the] sub-agent", "reuse a subagent"),
        ("use [a|the] sub-agent", "use a subagents"),
        ("use [a|the] sub-agent", "use an subagent"),
        ("use [a|the] sub-agent", "use a\n\nsubagent"),
        ("use [a|the] sub-agent", "use_a_subagent"),
        ("use [a|the] sub-agent", "useasubagent"),
        ("delegate this", "<delegate>this"),
        ("a.b", "axb"),
    ],
)
def test_a_phrase_is_not_found(phrase: str, text: str) -> None:
    assert not finds(phrase, text)


def test_no_phrases_are_found_nowhere() -> None:
    assert re.search(any_of(()), "anything") is None


@every_case("phrase", ["", "  ", "[a] word", "|x", "x|", "a [b c]", "a []", "a [|]", "a [b", "a b]"])
def test_what_does_not_follow_the_notation_is_no_phrase(phrase: str) -> None:
    assert not is_phrase(phrase)


@pytest.mark.parametrize("phrase", ["a", "a|b c", "a [b] [c|d] e", "l'outil", "«a»"])
def test_what_follows_the_notation_is_a_phrase(phrase: str) -> None:
    assert is_phrase(phrase)


def test_words_that_may_be_missing_never_make_a_search_slow() -> None:
    assert not finds("a" + " [b]" * 60 + " c", "a" + " b" * 50 + " d")
