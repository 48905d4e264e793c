"""Keys that a terminal passes on one by one are edited and shown here."""

import re

import pyte
import pytest

from deputy.interfaces.cli.typed_line import TypedLine


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (b"yes\r", "yes\n"),
        (b"nn\x7f\x7fy\n", "y\n"),
        (b"\x7f\x7fy", "y"),
        (b"one two\x17three", "one three"),
        (b"one  \x17two", "two"),
        (b"one\x15two", "two"),
        (b"one\ntwo\x15\x7fthree", "one\nthree"),
        ("größe\x7f\x7f".encode(), "grö"),
        ("日本\x7f".encode(), "日"),
        (b"a\x1b[A\x1b[3~\x1bOPb\x1b", "ab"),
        (b"a\tb\x00\x07\x9bc", "a b�c"),
    ],
)
def test_the_text_is_edited_and_the_screen_shows_it(keys, text):
    whole, apart = TypedLine(), TypedLine()
    echo = whole.feed(keys)
    assert whole.text == text
    # A key is read in several parts; only the escape before them comes with the next one.
    parts = [part for part in re.split(rb"(?<!\x1b)(?=[\s\S])", keys) if part]
    assert "".join(map(apart.feed, parts)) == echo
    shown = pyte.Screen(40, 5)
    pyte.Stream(shown).feed(echo.replace("\n", "\r\n"))
    rows = [row.replace("日 ", "日").rstrip() for row in shown.display]
    assert rows[: text.count("\n") + 1] == text.split("\n")
    assert not whole.is_over


def test_the_end_of_input_is_a_key():
    line = TypedLine()
    line.feed(b"y\x04")
    assert (line.text, line.is_over) == ("y", True)
