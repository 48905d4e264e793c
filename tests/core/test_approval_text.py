"""How an approval is shown: every field, nothing invisible, and what is cut is counted."""

import re

import pytest
from msgspec import structs
from tests.support.every_case import every_case

from deputy.core.approval import ApprovalPart, ApprovalRequest
from deputy.core.approval_text import DEFAULT_WIDTH, MOST_ROWS, PART_ROWS, headline, screen, visible, visible_line

pytestmark = pytest.mark.rule("approve.exact")


def run(command: str, *more: ApprovalPart, **fields) -> ApprovalRequest:
    parts = (ApprovalPart(name="command", text=command), *more)
    given = {"tool": "Run", "title": "Use Run", "risk": "high", "session_id": "sess_1_a", "label": "run"}
    return ApprovalRequest(parts=parts, **{**given, "path": ("orchestrator",), **fields})


def test_every_field_stands_on_rows_of_its_own():
    asked = run("touch X\n rm y", ApprovalPart(name="path", text="."))
    assert screen(asked).text.splitlines() == [
        "Use Run · risk: high",
        "  asked by: run (orchestrator) sess_1_a",
        "  command: (2 lines, 13 bytes)",
        "    │ touch X",
        "    │  rm y",
        "  path: .",
        f"  digest: {asked.digest}",
    ]


@every_case(
    ("hidden", "shown"),
    [
        ("ls" + " " * 1700 + "; touch X", "ls«1,700 spaces»; touch X"),
        ("ls\t\t; touch X", "ls⇥⇥; touch X"),
        ("ls\r; touch X", "ls\\x0d; touch X"),
        ("ls \x1b[2K; touch X", "ls \\x1b[2K; touch X"),
        ("ls \u202e; touch X", "ls \\u202e; touch X"),
        ("ls \u200b\u200d; touch X", "ls \\u200b\\u200d; touch X"),
        ("ls\u00a0; touch X", "ls\\xa0; touch X"),
        ("ls\u2028; touch X", "ls\\u2028; touch X"),
        ("ls\u3164; touch X", "ls\\u3164; touch X"),
        ("ls\ufe0f; touch X", "ls\\ufe0f; touch X"),
        ("ls\U000e0041; touch X", "ls\\U000e0041; touch X"),
        ("ls\U00016fe4\U0001d159; touch X", "ls\\U00016fe4\\U0001d159; touch X"),
        ("ls a" + "\u0336" * 5 + "; touch X", "ls a\u0336\u0336\\u0336\\u0336\\u0336; touch X"),
        ("ls \x00\x7f\x85\x9b; touch X", "ls \\x00\\x7f\\x85\\x9b; touch X"),
    ],
)
def test_nothing_in_a_field_is_invisible(hidden, shown):
    assert visible(hidden) == shown
    assert f"  command: {shown}" in screen(run(hidden), width=200).text


@every_case("letter", ["x", "漢", "é"])
@every_case("width", [10, 40, 80])
def test_no_row_is_wider_than_the_terminal_and_none_looks_like_a_field(letter, width):
    forged = letter * (width - 10) + "  path: /" + " " * 8 + "digest: 00"
    rows = screen(run(f"{forged}\n{forged}" * 3), width=width, whole=True).text.splitlines()
    room = max(30, width)
    assert all(sum(1 if one.isascii() else 2 for one in row) <= room for row in rows)
    names = [match[1] for row in rows if (match := re.match(r"  (\w[\w ]*):", row))]
    assert names == ["asked by", "command", "digest"]


def test_a_single_line_that_does_not_fit_is_one_line():
    shown = screen(run("\n".join(["echo"] * PART_ROWS)))
    assert "    … 1 more line, 4 more bytes" in shown.text.splitlines()


def test_what_does_not_fit_is_counted_and_shown_whole_on_demand():
    lines = [f"echo {number}" for number in range(1000)]
    asked = run("\n".join(lines))
    first = screen(asked)
    assert first.is_cut
    rest = sum(len(line) + 1 for line in lines[PART_ROWS - 1 :]) - 1
    assert f"    … {1000 - PART_ROWS + 1:,} more lines, {rest:,} more bytes" in first.text.splitlines()
    assert f"  NOT SHOWN: {rest:,} bytes of this call; details shows all of it" in first.text.splitlines()
    whole = screen(asked, whole=True)
    assert not whole.is_cut
    assert [row[6:] for row in whole.text.splitlines() if row.startswith("    │ ")] == lines


@pytest.mark.parametrize(
    ("line", "row"), [("", "«80 blank lines»"), ("  ", "  «80 blank lines»"), ("+", "+«80 blank lines»")]
)
def test_a_long_run_of_blank_lines_is_one_row_that_counts_them(line, row):
    asked = run("\n".join(["ls", *[line] * 80, "touch X"]))
    for whole in (False, True):
        rows = screen(asked, whole=whole).text.splitlines()
        assert [one[6:] for one in rows if one.startswith("    │ ")] == ["ls", row, "touch X"]
        assert not screen(asked, whole=whole).is_cut


def test_three_blank_lines_and_repeated_commands_stay_as_they_are():
    lines = ["ls", "", "", "", *["touch X"] * 5]
    rows = screen(run("\n".join(lines)), whole=True).text.splitlines()
    assert [one[6:] for one in rows if one.startswith("    │ ")] == lines


def test_lines_after_folded_blank_lines_are_counted_when_they_are_cut():
    lines = ["ls", *[""] * 80, *(f"echo {number}" for number in range(100))]
    first = screen(run("\n".join(lines)))
    hidden = lines[80 + PART_ROWS - 2 :]
    assert f"    … {len(hidden):,} more lines, {len('..'.join(hidden)) - len(hidden) + 1:,} more bytes" in first.text


def test_a_payload_at_the_end_of_one_long_line_is_never_left_out_without_a_word():
    asked = run("x" * 100_000 + "; touch X")
    first = screen(asked)
    assert first.is_cut
    assert "the rest of this line and 0 more lines" in first.text
    assert "; touch X" in screen(asked, whole=True).text.replace("\n    ┊ ", "")


def test_fields_beyond_the_first_rows_are_counted():
    asked = run("ls", *(ApprovalPart(name=f"field {number}", text="x") for number in range(100)))
    first = screen(asked)
    assert first.is_cut
    assert len(re.findall(r"^  field \d+: x$", first.text, re.MULTILINE)) == MOST_ROWS - 1
    assert f"… {100 - (MOST_ROWS - 1)} more fields; details shows them" in first.text
    assert "field 99" in screen(asked, whole=True).text


def test_names_of_fields_and_labels_cannot_forge_rows():
    asked = run("ls", ApprovalPart(name="a\n  path", text="."), label="x\n  risk: low", path=("a\nb",))
    rows = screen(asked).text.splitlines()
    assert rows[1] == "  asked by: x⏎  risk: low (a⏎b) sess_1_a"
    assert "  a⏎  path: ." in rows


def test_a_label_of_look_alike_letters_is_spelled_out():
    rows = screen(run("ls", label="\u0430uth")).text.splitlines()
    assert rows[1] == "  asked by: \u0430uth = '\\u0430uth' (orchestrator) sess_1_a"


def test_a_headline_is_one_line_and_says_what_it_leaves_out():
    assert headline(run("touch X\nrm y")) == "Use Run: touch X⏎rm y (risk: high)"
    long = headline(run("x" * 5000))
    assert long.endswith("… (5,000 bytes) (risk: high)")
    assert len(long) < 200


def test_a_text_of_megabytes_is_shown_in_time():
    asked = run("x" * 2_000_000 + "\n" * 100_000)
    assert screen(asked).is_cut
    assert len(screen(asked, width=DEFAULT_WIDTH, whole=True).text) > 2_000_000


def test_what_is_shown_changes_with_the_digest():
    asked = run("ls")
    assert screen(asked).text != screen(structs.replace(asked, call="other")).text


@pytest.mark.rule("approve.exact")
@every_case(
    ("one", "other"),
    [
        ("a" + " " * 12 + "b", "a«12 spaces»b"),
        ("a.txt", "a.txt "),
        ("a\nb", "a  \nb"),
        ("a ", "a«1 space»"),
        ("a\tb", "a⇥b"),
        ("a\rb", "a\\x0db"),
        ("a\u202eb", "a\\u202eb"),
        ("a\U000e0041b", "a\\U000e0041b"),
        ("a\\\x1bb", "a\\\\x1bb"),
        ("a\nb", "a⏎b"),
        ("a" + "\n" * 81 + "b", "a\n«80 blank lines»\nb"),
        ("a" + "\n" * 81 + "b", "a" + "\n" * 80 + "b"),
        ("a\U0001d159b", "a\\U0001d159b"),
    ],
)
def test_two_different_texts_never_look_alike(one, other):
    assert visible_line(one) != visible_line(other)
    # A person does not see spaces at the end of a row.
    first, second = ([row.rstrip() for row in screen(run(text)).text.split("\n")][:-1] for text in (one, other))
    assert first != second


def test_an_ordinary_backslash_stays_as_it_is():
    assert visible_line(r"sed 's/\n\d/x/' C:\users") == r"sed 's/\n\d/x/' C:\users"


def test_who_asks_where_and_at_which_cost_stands_above_the_fields():
    asked = run("ls", folder="/w\x1b", cost="at most $1.00", label="сout")
    assert screen(asked).text.splitlines()[1:4] == [
        "  asked by: сout = '\\u0441out' (orchestrator) sess_1_a",
        "  folder: /w\\x1b",
        "  cost: at most $1.00",
    ]
    bare = run("ls", session_id="", label="", path=())
    assert screen(bare).text.splitlines()[1] == "  command: ls"
