import time

import pytest
from tests.support.every_case import every_case

from deputy.interfaces.text_lines import PlainStream, cost_part, count, elapsed, escaped_invisible, one_line, plain


@every_case(
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


SEQUENCES = [
    "\x1b]0;title\x07",
    "\x1b]0;title\x1b\\",
    "\x9d0;title\x9c",
    "\x1b]8;;http://x/?a=b\nc\x1b\\",
    "\x1bPq#0;2;0;0;0\x1b\\",
    "\x1b_Gf=100;AAAA\x1b\\",
    "\x1b^private\x1b\\",
    "\x1bXstring\x1b\\",
    "\x1b[1;31m",
    "\x9b2J",
    "\x1b(B",
    "\x1b7",
]


@pytest.mark.rule("untrusted")
@every_case("sequence", SEQUENCES)
def test_an_escape_is_removed_with_all_that_belongs_to_it_however_it_is_split(sequence):
    text = f"before {sequence}after"
    assert plain(text) == "before after"
    assert one_line(text * 400, 20) == "before afterbefore…"
    for at in range(len(text)):
        stream = PlainStream()
        assert stream.feed(text[:at]) + stream.feed(text[at:]) + stream.finish() == "before after"
    stream = PlainStream()
    assert "".join(map(stream.feed, text)) + stream.finish() == "before after"


@pytest.mark.rule("untrusted")
def test_an_escape_without_an_end_hides_nothing():
    assert plain("\x1b]0;all\nthe rest") == "0;all\nthe rest"
    assert plain("\x1b]" + "x" * 5000 + "\x07") == "x" * 5000
    stream = PlainStream()
    assert "".join(map(stream.feed, "\x1b]" + "x" * 5000)) + stream.finish() == "x" * 5000
    assert plain("\x1b]\x1b]0;t\x07a\x1b[") == "a"


@pytest.mark.rule("untrusted")
def test_an_approval_shows_what_an_escape_would_hide():
    assert escaped_invisible("echo \x1b]0;; rm -rf .\x07") == "echo \\x1b]0;; rm -rf .\\x07"


@pytest.mark.rule("untrusted")
@pytest.mark.parametrize("piece", ["\x1b]", "\x9d", "\x9d" + "a" * 5000, "\x1b[" + "0" * 70, "\x1b" + " " * 9])
def test_hostile_text_costs_what_it_is_long(piece):
    def steps(times: int) -> float:
        began = time.process_time()
        plain(piece * (times * 30_000 // len(piece)))
        return time.process_time() - began

    small = min(steps(4) for _ in range(3))
    assert min(steps(32) for _ in range(3)) < 8 * 4 * small + 0.05


def test_numbers_are_short_enough_for_a_line():
    assert [count(n) for n in (0, 890, 999, 1000, 2100, 9949, 9960, 45_000, 999_600, 1_250_000)] == [
        "0", "890", "999", "1k", "2.1k", "9.9k", "10k", "45k", "1M", "1.2M",
    ]  # fmt: skip
    assert [elapsed(s) for s in (0.04, 9.94, 9.96, 59.4, 59.6, 185, 7620, 273_700)] == [
        "0.0s", "9.9s", "10s", "59s", "1m00s", "3m05s", "2h07m", "3d04h",
    ]  # fmt: skip
    assert [cost_part(n) for n in (None, 0, 0.0012, 0.14)] == ["cost unknown", "free", "$0.0012", "$0.14"]
