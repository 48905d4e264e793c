"""Reading what real agents write."""

from __future__ import annotations

import copy

import pytest
from tests.support.every_case import every_case

from deputy.core.contract import ExpectedReturn, check
from deputy.core.contract.leniency import STATUS_SYNONYMS, read_leniently

SYNONYMS = [(word, status) for status, words in STATUS_SYNONYMS.items() for word in words.split()]


@pytest.mark.rule("contract.lenient")
@every_case(("word", "status"), SYNONYMS)
def test_a_synonym_stands_for_its_status(word, status, made):
    for spelt in (word, word.upper(), word.replace("_", " "), f" **{word.title()}** "):
        checked = check(made(status=spelt), mode="lenient")
        assert checked.return_ is not None
        assert checked.return_.status == status
        assert any(correction.startswith("status: ") for correction in checked.corrections)
        assert not check(made(status=spelt)).is_valid


@pytest.mark.rule("contract.lenient")
@every_case(
    "word", ["done", "success", "researched", "planned", "implemented", "report_ready", "finished", "in_progress"]
)
def test_the_words_that_agents_use_most_are_known(word):
    assert (word, "partial" if word == "in_progress" else "completed") in SYNONYMS


def test_no_word_stands_for_two_statuses_or_for_one_that_has_a_name():
    words = [word for word, _ in SYNONYMS]
    assert len(words) == len(set(words))
    assert not set(words) & set(STATUS_SYNONYMS)


@pytest.mark.rule("contract.lenient")
def test_every_correction_taken_is_listed():
    output = {"status": "done", "summary": "x", "artifacts": ["a.md", {"path": "b.md"}], "session_id": "s"}
    checked = check(output, ExpectedReturn(session_id="s", agent_type="planner"), "lenient")
    assert checked.is_valid
    assert checked.corrections == (
        "status: done read as completed",
        "session_id: read from the top level into metadata",
        "metadata.agent_type: missing, taken to be planner",
        "artifacts[0]: a bare path read as an artifact of type file",
        "artifacts[1].type: missing, taken to be file",
    )


@pytest.mark.rule("contract.lenient")
def test_a_return_without_a_duration_takes_no_correction(made):
    assert check(made(), mode="lenient").corrections == ()


def test_what_is_given_stays_as_it_is(made):
    output = made(status="done", artifacts=["a", None, {"file": "b", "type": None}], errors="x", metadata={"x": None})
    before = copy.deepcopy(output)
    read_leniently(output, ExpectedReturn())
    assert output == before


def test_leniency_ends_where_meaning_does(made):
    for output in (
        made(status="cancelled"),
        made(artifacts=...),
        made(summary=""),
        made(metadata=...),
        made(artifacts=5),
    ):
        assert not check(output, mode="lenient").is_valid


def test_a_summary_that_says_nothing_makes_no_error(made):
    checked = check(made(status="partial", summary=" "), mode="lenient")
    assert [problem.message for problem in checked.problems] == [
        "Summary cannot be empty",
        "Missing required field: errors",
    ]


def test_corrections_stay_short_whatever_was_returned(made):
    assert len(check(made(artifacts=["a.md"] * 1000), mode="lenient").corrections) == 51


@pytest.mark.rule("contract.lenient")
@every_case(
    ("written", "read"),
    [
        ({"delegation_depth": "2"}, {"delegation_depth": 2}),
        ({"duration_seconds": "1.5"}, {"duration_seconds": 1.5}),
        ({"delegation_depth": "two"}, {"delegation_depth": "two"}),
        ({"delegation_depth": "1" * 21}, {"delegation_depth": "1" * 21}),
        ({"delegation_depth": "1" * 20}, {"delegation_depth": int("1" * 20)}),
        ({"delegation_path": "a → b"}, {"delegation_path": ["a", "b"]}),
        ({"delegation_path": "a -> b/c"}, {"delegation_path": ["a", "b/c"]}),
        ({"delegation_path": "a > b"}, {"delegation_path": ["a", "b"]}),
        ({"delegation_path": " a "}, {"delegation_path": ["a"]}),
        ({"delegation_path": 5}, {"delegation_path": 5}),
    ],
)
def test_numbers_and_paths_written_as_text_are_read(written, read):
    given, corrections = read_leniently({"metadata": {"agent_type": "a", **written}}, ExpectedReturn())
    assert given == {"metadata": {"agent_type": "a", **read}}
    assert len(corrections) == (written != read)


@pytest.mark.rule("contract.lenient")
@every_case(
    ("path", "agent_type", "agent"),
    [
        (["a", "b"], "planner", "planner"),
        (["a", "b"], "", "b"),
        (["a", " "], "", "unknown"),
        ([5], "", "unknown"),
        ([], "", "unknown"),
        ("a", "", "a"),
    ],
)
def test_a_missing_agent_is_the_expected_one_or_the_last_of_the_path(path, agent_type, agent):
    given, _ = read_leniently({"metadata": {"delegation_path": path}}, ExpectedReturn(agent_type=agent_type))
    assert given["metadata"]["agent_type"] == agent  # pyright: ignore


@pytest.mark.rule("contract.lenient")
def test_next_steps_in_a_list_are_lines():
    assert read_leniently({"next_steps": ["a", "b"]}, ExpectedReturn()) == (
        {"next_steps": "a\nb"},
        ("next_steps: a list read as lines",),
    )
    assert read_leniently({"next_steps": ["a", 5]}, ExpectedReturn()) == ({"next_steps": ["a", 5]}, ())
    assert read_leniently({"metadata": {}}, ExpectedReturn()) == ({"metadata": {}}, ())
    assert read_leniently({}, ExpectedReturn()) == ({}, ())
