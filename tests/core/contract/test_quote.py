"""How messages speak of hostile values."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.every_case import every_case

from deputy.core.contract.quote import joined, kind_of, quoted


@every_case(
    ("value", "shown"),
    [
        ("done", "done"),
        ("", '""'),
        ("\x00\x1b", '""'),
        ("a\nb\tc", "a b c"),
        ("\x1b[31mred", "[31mred"),
        ("\u202eabc\u200b", "abc"),
        ("a\ud800b\U000e0041c\u061c", "abc"),
        ("x" * 81, "x" * 79 + "…"),
        ("x" * 80, "x" * 80),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (2**64 - 1, "18446744073709551615"),
        (2**64, "a huge number"),
        (10**400, "a huge number"),
        ([1], "a list"),
        ({}, "an object"),
        (object(), "something that is not JSON"),
    ],
)
def test_a_value_is_shown_short_and_harmless(value, shown):
    assert quoted(value) == shown


@settings(deadline=None)
@given(st.text() | st.floats() | st.integers() | st.lists(st.text()))
def test_whatever_is_quoted_stays_on_one_printable_line(value):
    shown = quoted(value)
    assert 0 < len(shown) <= 80
    assert shown.isprintable()
    shown.encode()


def test_many_names_are_cut():
    assert joined(["a", "b"]) == "a → b"
    assert joined([str(n) for n in range(100)]) == "0 → 1 → 2 → 3 → 4 → 5 → 6 → 7 → …"


def test_a_number_that_python_itself_will_not_print_is_not_printed():
    assert quoted(10**5000) == "a huge number"


def test_kinds_have_words():
    assert kind_of("\ud800") == "a string that is not valid Unicode"
    assert kind_of(False) == "false"
