import json
import unicodedata

import pytest
from tests.support.every_case import every_case

from deputy.core.foreign_text import PlainStream, kept_apart, plain, plain_data
from deputy.core.task import MAX_LABEL, cleaned_label, read_label
from deputy.core.visible_text import escaped_invisible, visible_json, visible_json_of

JOINERS = "\u200c\u200d"
TAGS = {chr(code) for code in range(0xE0000, 0xE0080)}


@pytest.fixture(scope="module")
def every() -> list[str]:
    """Every assigned character: a newer Unicode knows more of those that are invisible."""
    return [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]


def is_hidden(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") or letter in TAGS


@pytest.mark.rule("text.visible")
def test_text_has_no_invisible_character_of_all_that_there_are(every):
    kept = [letter for letter in every if not is_hidden(letter) or letter in "\n\t" + JOINERS]
    # Each stands between letters, so that none is the end of a terminal sequence that another begins.
    text = "".join(f"{letter}a" for letter in every if letter not in "\x1b\x90\x98\x9b\x9d\x9e\x9f")
    assert set(plain(text)) == set(kept)
    assert plain("".join(kept)) == "".join(kept)


@pytest.mark.rule("text.visible")
@every_case("letter", "\x1b\x90\x98\x9b\x9d\x9e\x9f")
def test_text_does_not_keep_what_begins_a_terminal_sequence(letter):
    assert letter not in plain(f"a{letter}b\n{letter}")
    stream = PlainStream()
    assert letter not in stream.feed(f"a{letter}") + stream.feed("b\n") + stream.finish()


@pytest.mark.rule("text.visible")
def test_json_escapes_every_invisible_character_and_means_the_same(every):
    encoded = visible_json({"text": every})
    assert json.loads(encoded) == {"text": every}
    shown = encoded.decode()
    assert not [letter for letter in set(shown) if is_hidden(letter)]
    assert visible_json_of(visible_json(every)) == visible_json(every)


@pytest.mark.rule("text.visible")
def test_indented_json_keeps_its_lines():
    assert visible_json({"a": "\u202e"}, indent=2) == b'{\n  "a": "\\u202e"\n}'
    assert visible_json(["\U000e0041", "\x9b"]) == b'["\\udb40\\udc41","\\u009b"]'


@pytest.mark.rule("text.visible")
def test_an_approval_shows_every_character_that_cannot_be_seen(every):
    shown = escaped_invisible("".join(every))
    for letter in set(shown) - set("\n\t"):
        assert letter.isprintable()
        assert unicodedata.category(letter) not in ("Cc", "Cf", "Zl", "Zp", "Cn", "Co")
    assert escaped_invisible("rm\u00a0-rf\u200d /\n\t\u202e\ufe0f\U000e0041") == (
        "rm\\xa0-rf\\u200d /\n\t\\u202e\\ufe0f\\U000e0041"
    )
    assert escaped_invisible("naïve 日本語 ls -l | wc") == "naïve 日本語 ls -l | wc"


BLANK_NAMES = (
    *(" JOINER", "HANGUL FILLER", "JUNGSEONG FILLER", "CHOSEONG FILLER", "SCRIPT FILLER"),
    *("VARIATION SELECTOR", "INVISIBLE", "PATTERN BLANK", "FULL BLANK", "HALF BLANK"),
)


@pytest.mark.rule("text.visible")
def test_an_approval_shows_every_character_whose_name_says_that_it_is_blank(every):
    blank = [letter for letter in every if any(word in unicodedata.name(letter, "") for word in BLANK_NAMES)]
    marks = [letter for letter in every if unicodedata.category(letter) in ("Mn", "Me")]
    assert {"\u2d7f", "\U0001107f"} < set(blank)
    for letter in blank:
        assert letter not in escaped_invisible(f"a{letter}b"), unicodedata.name(letter)
        assert letter not in escaped_invisible(f"ⴰ{letter}ⴰ"), unicodedata.name(letter)
    # A mark is seen where its script is written; an accent is seen on any letter.
    kept = [mark for mark in marks if mark in escaped_invisible(f"a\u0301{mark}{mark}b")]
    assert all(unicodedata.name(mark).startswith("COMBINING ") for mark in kept)
    for word in ("e\u0301", "ខ្មែរ", "မြန်မာ", "हिन्दी", "שָׁלוֹם", "தமிழ்"):
        assert escaped_invisible(word) == word


@pytest.mark.rule("text.visible")
def test_data_is_plain_however_deep_a_text_lies_in_it():
    assert plain_data({"a\u200b": ["\u202eb", {"c": "\x1b[1md"}], "n": 1, "t": None}) == {
        "a": ["b", {"c": "d"}],
        "n": 1,
        "t": None,
    }


@pytest.mark.rule("text.visible")
@every_case("hidden", ["\u200b", "\u2060", "\ufeff", "\xad", "\x1b[0m", "\U000e0041", "\u061c"])
def test_a_heading_is_not_hidden_by_a_character_that_is_removed_later(hidden):
    for text in (f"{hidden}### [other] ✓", f"#{hidden}## [other] ✓", f"###{hidden} [other] ✓"):
        assert kept_apart(text, ["["]).startswith("\\###")


LABELS = [
    "a[b",
    "a]",
    "one\ntwo",
    "a\tb",
    "a\rb",
    "a\u2028b",
    "a\u200bb",
    "\u202eabc",
    "a\x1b[1mb",
    "a［b］",
    "",
    " ",
    7,
]


@pytest.mark.rule("text.visible")
@every_case("label", LABELS)
def test_a_label_with_brackets_line_breaks_or_invisible_characters_is_refused(label):
    assert read_label(label)[0] is None
    if isinstance(label, str) and label.strip():
        assert read_label(cleaned_label(label)) == (cleaned_label(label), "")


@pytest.mark.rule("text.visible")
@every_case("label", ["auth", "mag ich", "日本語", "👩‍💻", "a(b)", "x" * MAX_LABEL])
def test_a_label_in_any_script_is_taken_as_it_is(label):
    assert read_label(label) == (label, "")
    assert cleaned_label(label) == label
