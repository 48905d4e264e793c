"""A stream hides the same as one text, however it is cut, and holds back little."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.core.redaction.samples import made_up, private_key, secret_lines
from tests.support.every_case import every_case

from deputy.core.foreign_text import unsplit
from deputy.core.redaction import MARK, Redactor

KNOWN = [f'made up/{made_up(12, seed=1)}+"ü😀"', made_up(40, seed=2), made_up(9, seed=3)]
KNOWING = Redactor(KNOWN)
SECRETS = secret_lines()
PIECES = st.one_of(
    st.sampled_from([line for line, _ in SECRETS]),
    st.sampled_from(KNOWN),
    st.sampled_from(
        [*"=: \n\"'\\-_.@/&,;?)]}<>", "token", "password=", "sk-", "Bearer ", "://", "://a:", "-----BEGIN ", "eyJ", "İ",
         "\\n", '\\"', "''", "'\\''", '"""', "--password ", "curl -u ", "mysql -p", "Authorization: ", "Cookie: a=",
         "x-api-key: ", "[redacted]", "${X}", "None", "self.password", "password: str = ", "MIIE", made_up(64),
         "-----END RSA PRIVATE KEY-----", "  12\t", "Basic ", " => ", "{", "%s", "_key=", "?key=", "&sig=", ":AA"]
    ),
    st.text(max_size=8),
)  # fmt: skip


def streamed(redactor: Redactor, chunks: list[str]) -> str:
    stream = redactor.stream()
    return "".join([*map(stream.feed, chunks), stream.flush()])


@given(st.lists(PIECES, max_size=8), st.lists(st.integers(0, 900), max_size=6))
@example(["token", ": str", " = ", "'", made_up(20), "'"], [6, 9])
@pytest.mark.rule("redact.simple")
def test_chunks_make_no_difference(pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces)
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    assert streamed(KNOWING, [text[a:b] for a, b in pairwise(edges)]) == streamed(KNOWING, [text])


@given(st.lists(PIECES, max_size=8))
def test_single_characters_make_no_difference(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert streamed(KNOWING, list(text)) == streamed(KNOWING, [text])


@given(st.lists(PIECES, max_size=8))
def test_a_stream_hides_what_is_hidden_in_the_whole_text(pieces: list[str]) -> None:
    # The whole text is also judged without its invisible characters.
    text = unsplit("".join(pieces))
    assert streamed(KNOWING, list(text)) == KNOWING.redact(text)


@given(st.lists(PIECES, max_size=8))
def test_redacting_twice_changes_nothing(pieces: list[str]) -> None:
    once = KNOWING.redact("".join(pieces))
    assert KNOWING.redact(once) == once


@given(st.lists(PIECES, max_size=8))
def test_held_text_is_bounded_and_known_values_never_show(pieces: list[str]) -> None:
    text = "".join(pieces)
    stream = KNOWING.stream()
    shown = ""
    for character in text:
        shown += stream.feed(character)
        assert stream.held <= 1_400
    shown += stream.flush()
    assert not any(value in shown for value in KNOWN)


def test_ordinary_text_is_held_back_by_a_word() -> None:
    stream = KNOWING.stream()
    for character in "The report says that nothing was found, and that is that. " * 20:
        stream.feed(character)
        assert stream.held <= len("nothing ")


def test_a_secret_cut_in_two_is_hidden() -> None:
    after = "\nand on " + "and on " * 130
    for line, secret in SECRETS:
        whole = Redactor().redact(line + after)
        assert secret not in whole
        middle = line.index(secret) + len(secret) // 2
        assert streamed(Redactor(), [line[:middle], line[middle:], after]) == whole
        assert streamed(Redactor(), [*line, after]) == whole


@pytest.mark.parametrize("step", [1, 7, 100, 1000])
def test_a_long_value_is_hidden_to_its_end(step: int) -> None:
    value = made_up(5_000)
    text = f'password="{value}" and a key: {private_key()[0]}\nthe end'
    shown = streamed(Redactor(), [text[at : at + step] for at in range(0, len(text), step)])
    assert shown == f'password="{MARK}" and a key: {MARK}\nthe end'


@pytest.mark.parametrize("step", [1, 13, 300, 5000])
def test_a_known_value_may_be_a_whole_file(step: int) -> None:
    value = made_up(3_000, seed=6)
    text = f"before {value} after"
    shown = streamed(Redactor([value]), [text[at : at + step] for at in range(0, len(text), step)])
    assert shown == f"before {MARK} after"


def test_a_known_value_inside_another_known_value_is_hidden_with_it() -> None:
    redactor = Redactor(["abcdefgh1jkl", "cdefgh1j"])
    assert streamed(redactor, [*"before abcdefgh1jkl after"]) == f"before {MARK} after"


@pytest.mark.rule("redact.simple")
@pytest.mark.rule("text.visible")
@every_case(
    "hidden",
    ["\u200b", "\u202e", "\x00", "\x1b[1m", "\u3164", "\\u200b", "\\\\u200b", "\\x00", "\\U000e0041", "\\ud834\\udd59",
     "\\u001b[1m", "\x1b]0;title\x07", "\\x1b]0;title\\x07"],
)  # fmt: skip
@every_case("step", [1, 3, 1000])
def test_an_invisible_character_raw_or_escaped_splits_no_secret_of_a_stream(hidden: str, step: int) -> None:
    value = KNOWN[1]
    for line in (
        f"pass{hidden}word=hunter{hidden}2",
        f"{hidden}sk-ant-{made_up(9)}{hidden}{made_up(20)}",
        f"{value[:9]}{hidden}{value[9:]}",
    ):
        text = f"a{hidden}b {line} c{hidden}d"
        shown = streamed(KNOWING, [text[at : at + step] for at in range(0, len(text), step)])
        assert shown == KNOWING.redact(text)
        name = "password=" if "=" in line else ""
        assert unsplit(shown) == f"ab {name}{MARK} cd"
        # What stands beside a secret stays as it was, but for a terminal's sequence with text in it.
        assert shown.startswith("ab" if "title" in hidden else f"a{hidden}b ")


@pytest.mark.rule("redact.simple")
@every_case(
    "text",
    ["\x1b]0;password=hunter2\x07", "\x1bPpassword=hunter2\x1b\\", "\x9dpassword=hunter2\x9c",
     "\x1b]0;password=hunter2", "\\x1b]0;password=hunter2\\x07", f"\x1b]8;;{KNOWN[1]}\x07link", "\x1b[1234567890123m"],
)  # fmt: skip
def test_a_sequence_for_the_terminal_carries_no_secret(text: str) -> None:
    redactor = Redactor([*KNOWN, "1234567890123"])
    whole = redactor.redact(f"a{text}b")
    assert whole == streamed(redactor, [*f"a{text}b"])
    assert not [secret for secret in ("hunter2", KNOWN[1], "1234567890123") if secret in whole]


@pytest.mark.parametrize(
    "piece", ["\u200b", "\x9d", "\\u200b", f"password={KNOWN[1]}", f"{KNOWN[1]} ", "a\u200b"], ids=range(6)
)
def test_work_on_a_stream_grows_with_its_length_and_no_faster(piece: str) -> None:
    def cost(length: int) -> float:
        text = piece * (length // len(piece))
        start = time.thread_time()
        streamed(KNOWING, [text[at : at + 5] for at in range(0, len(text), 5)])
        return time.thread_time() - start

    cost(1_000)
    small = min(cost(2_000) for _ in range(2))
    assert cost(16_000) <= 24 * max(small, 0.001)


def test_of_many_invisible_characters_at_one_place_some_are_kept() -> None:
    shown = streamed(KNOWING, [*("\u200b" * 500), "password=hunter2"])
    assert shown == "\u200b" * 64 + f"password={MARK}"
