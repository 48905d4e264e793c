import pytest

from deputy.interfaces.plain import one_line, plain


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "\x1b]8;;http://x\x1b\\link",
        "\x9b2J",
        "a\rb",
        "a\bb",
        "\x00\x7f\x85",
        "\u202eright to left\u202c",
        "\u2066isolated\u2069",
        "line\u2028separator",
    ],
)
def test_nothing_that_moves_a_terminal_gets_through(hostile):
    assert all(character.isprintable() for character in plain(hostile))


def test_ordinary_text_is_untouched():
    text = "naïve → “quotes”\n\tindented 日本語 🙂"
    assert plain(text) == text


def test_a_long_text_becomes_one_line_of_the_width():
    assert one_line("a\n  b\tc", 80) == "a b c"
    assert one_line("word " * 100, 20) == "word word word word…"
    assert len(one_line("x" * 10_000_000, 80)) == 80
