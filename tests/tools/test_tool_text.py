import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputy.tools.tool_text import beginning, cut, shown_path


@given(st.text(), st.integers(0, 50))
def test_a_beginning_fits_and_is_a_beginning(text, limit):
    kept = beginning(text, limit)
    assert text.startswith(kept)
    assert len(kept.encode("utf-8", "replace")) <= limit


def test_what_is_cut_says_how_much_is_missing():
    assert cut("short", 100) == "short"
    assert cut("a" * 120, 100, "ask for less") == "a" * 100 + "\n[cut here: 20 more characters; ask for less]"
    assert cut("line one\nline two\nline three\n", 20).startswith("line one\nline two\n\n[cut here: 11 more")


@pytest.mark.parametrize("path", ["a\nb", "\x1b[2J", "\udcff", "\u202e", "\0"])
def test_a_name_that_could_deceive_is_quoted_on_one_line(path):
    assert shown_path(path).isprintable()
    assert shown_path(path).startswith("'")
    assert shown_path("src/a b.py") == "src/a b.py"
