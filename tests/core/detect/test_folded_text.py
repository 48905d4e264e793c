"""Folding keeps every character in its place; cursors and zones answer as if the text were searched anew."""

from __future__ import annotations

import re
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from deputy.core.detect.folded_text import FoldedText, TextCursor, TextZones, comments, fences, fold


def test_folding_keeps_every_character_in_its_place() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert len(fold(every)) == len(every)
    assert all(len(chr(code).lower()) == 1 for code in range(sys.maxunicode + 1) if chr(code) != "\u0130")


def test_folding_makes_spaces_apostrophes_and_line_ends_plain() -> None:
    assert fold("L’OUTIL\u00a0Task\u202f:\r\nsub\u2011Agent\rEnd\t.") == "l'outil task : \nsub-agent\nend ."


@settings(deadline=None)
@given(st.text("ab\n"), st.lists(st.integers(0, 30)))
def test_a_cursor_finds_what_a_search_finds(text: str, positions: list[int]) -> None:
    cursor = TextCursor("ab|b\n", text)
    for position in sorted(positions):
        expected = re.compile("ab|b\n").search(text, position)
        found = cursor.after(position)
        assert (found and found.span()) == (expected and expected.span())
        assert cursor.start(position) == (expected.start() if expected else len(text))


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), unique=True).map(sorted), st.lists(st.integers(0, 60)).map(sorted))
def test_zones_tell_what_a_position_stands_in(borders: list[int], positions: list[int]) -> None:
    spans = list(zip(borders[::2], borders[1::2], strict=False))
    zones = TextZones(spans)
    for position in positions:
        assert zones.around(position) == next((s for s in spans if s[0] <= position < s[1]), None)


def test_fences_end_with_a_fence_of_their_kind_that_is_long_enough() -> None:
    text = "a\n````md\n```\nb\n```\n````\nc\n~~~\nd\n```\n~~~\ne\n```inline``` f\n> ```\n> g\n"
    zones = fences(FoldedText(text))
    inside = {letter: zones.around(text.index(letter)) is not None for letter in "abcdefg" if letter != "d"}
    assert inside == {"a": False, "b": True, "c": False, "e": False, "f": False, "g": True}


def test_an_unclosed_comment_hides_nothing() -> None:
    text = "<!-- a --> b <!-- c"
    zones = comments(FoldedText(text))
    assert zones.around(text.index("a")) is not None
    assert zones.around(text.index("b")) is None
    assert zones.around(text.index("c", 12)) is None


def test_a_lead_is_indentation_quote_marks_and_one_list_mark() -> None:
    page = FoldedText("  > - x\nword y\n1. z\n" + " " * 50 + "w")
    assert page.lead(page.text.index("x")) == "  > - "
    assert page.lead(page.text.index("y")) is None
    assert page.lead(page.text.index("z")) == "1. "
    assert page.lead(page.text.index("w", 20)) is None
