"""Whether a value holds to the contract."""

from __future__ import annotations

import json
import posixpath

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.every_case import every_case

from deputy.core.contract import CheckedReturn, ExpectedReturn, Return, check, read
from deputy.core.contract.leniency import ARTIFACT_FIELDS, ERROR_FIELDS
from deputy.core.contract.return_check import why_outside
from deputy.core.contract.return_types import ARTIFACT, ERROR, METADATA, RETURN

MODES = ("strict", "lenient")
TIMEOUT = {"type": "timeout", "message": "Too slow.", "recoverable": True, "recommendation": "Resume it."}


def messages(value, expected=None, mode="strict") -> list[str]:
    checked = check(value, expected, mode)
    assert all(problem.rule == "contract.check" for problem in checked.problems)
    return [problem.message for problem in checked.problems]


@pytest.mark.rule("contract.check")
def test_a_good_return_becomes_a_typed_one(made, expected):
    checked = check(made(next_steps="Go on."), expected)
    assert checked.is_valid
    assert isinstance(checked.return_, Return)
    assert checked.return_.artifacts[0].path == "docs/report.md"
    assert checked.return_.metadata.session_id == expected.session_id
    assert checked.return_.next_steps == "Go on."


@pytest.mark.rule("contract.check")
def test_all_problems_come_at_once_in_the_order_of_the_contract(expected):
    value = {
        "next_steps": 1,
        "artifacts": [{"type": "file", "path": "../x"}],
        "metadata": {"delegation_path": ["a"], "delegation_depth": 9, "session_id": "other"},
        "summary": "",
        "status": "maybe",
    }
    assert messages(value, expected) == [
        "Missing required field: metadata.agent_type",
        "Invalid status: maybe",
        "Summary cannot be empty",
        f"Session ID mismatch: other != {expected.session_id}",
        "Delegation depth mismatch: 9 != 1",
        "Delegation path mismatch: a != orchestrator → research → researcher",
        "Artifact path outside the workspace: ../x (it leads out of it)",
        "Wrong type for next_steps: expected a string, found 1",
    ]


@pytest.mark.rule("contract.check")
def test_errors_are_asked_for_after_the_lineage_and_before_the_artifacts(made, expected):
    value = made(status="partial", metadata={"session_id": "x", "agent_type": "researcher"}, artifacts=[3])
    assert messages(value, expected) == [
        f"Session ID mismatch: x != {expected.session_id}",
        "Missing required field: errors",
        "Wrong type for artifacts[0]: expected an object, found 3",
    ]


@pytest.mark.rule("contract.check")
@pytest.mark.parametrize("status", ["partial", "failed", "blocked"])
def test_what_is_not_completed_names_an_error(made, status):
    assert messages(made(status=status)) == ["Missing required field: errors"]
    assert messages(made(status=status, errors=[])) == [f"Errors cannot be empty when the status is {status}"]
    assert messages(made(status=status, errors=[TIMEOUT])) == []
    blank = {**TIMEOUT, "message": " "}
    assert messages(made(status=status, errors=[TIMEOUT, blank])) == ["Empty field: errors[1].message"]


@pytest.mark.rule("contract.check")
@pytest.mark.parametrize(
    ("length", "problems", "warnings"),
    [
        (0, ["Summary cannot be empty"], 0),
        (1, [], 0),
        (400, [], 0),
        (401, [], 1),
        (500, [], 1),
        (501, ["Summary too long (max 500 chars)"], 0),
    ],
)
def test_a_summary_has_1_to_500_characters_and_over_400_warn(made, length, problems, warnings):
    value = made(summary="ä" * length)
    assert messages(value) == problems
    assert len(check(value).warnings) == warnings


@pytest.mark.rule("contract.check")
def test_the_path_of_the_registry_or_the_callers_passes_the_latter_with_a_warning(made, expected):
    def with_path(*names):
        return check(made(metadata={**made()["metadata"], "delegation_path": list(names)}), expected)

    assert with_path("orchestrator", "research", "researcher") == with_path(*expected.path)
    assert with_path(*expected.path).warnings == ()
    caller = with_path("orchestrator", "research")
    assert caller.is_valid
    assert caller.warnings == ("Delegation path ends with the caller: researcher is missing at the end",)
    assert not with_path("orchestrator").is_valid
    assert not with_path("orchestrator", "plan").is_valid
    assert not with_path("orchestrator", "research", "researcher", "helper").is_valid
    assert not with_path().is_valid


def test_an_empty_path_is_not_the_callers_even_of_a_target_at_the_top(made):
    value = made(metadata={**made()["metadata"], "delegation_path": []})
    assert messages(value, ExpectedReturn(path=("researcher",))) == ["Delegation path mismatch: nothing != researcher"]


def test_what_is_not_expected_is_not_compared(made):
    metadata = {"session_id": "a", "agent_type": "b", "delegation_depth": 7, "delegation_path": ["c"]}
    assert check(made(metadata=metadata)).is_valid


def test_an_artifact_may_be_named_absolutely_beneath_the_workspace_alone(made):
    value = made(artifacts=[{"type": "file", "path": "/work/docs/a.md"}])
    assert messages(value, ExpectedReturn(workspace="/work")) == []
    assert messages(value, ExpectedReturn(workspace="/other")) != []
    assert messages(value) != []


def test_a_claimed_duration_longer_than_the_delegation_warns(made):
    value = made(metadata={**made()["metadata"], "duration_seconds": 900})
    assert check(value, ExpectedReturn(elapsed_seconds=30.2)).warnings == (
        "Duration is 900 s, but the delegation began 30 s ago",
    )
    assert check(value, ExpectedReturn(elapsed_seconds=900)).warnings == ()


def test_problems_and_warnings_stay_short_whatever_was_returned(made):
    checked = check(made(artifacts=[0] * 100_000, **{f"x{n}": n for n in range(1000)}))
    assert len(checked.problems) == len(checked.warnings) == 51
    assert checked.problems[-1].message == "… and 99950 more like these"


def test_numbers_without_end_are_not_repeated(made):
    value = made(metadata={**made()["metadata"], "delegation_depth": 10**5000, "duration_seconds": 10**5000})
    assert messages(value) == [
        "Wrong type for metadata.delegation_depth: expected a whole number, 0 or more, found a huge number",
        "Wrong type for metadata.duration_seconds: expected a number of seconds, 0 or more, found a huge number",
    ]


def test_checking_is_linear(made, growth):
    assert growth(lambda size: check(made(artifacts=[{"path": "a", "zz": 1}] * size), mode="lenient"), 4_000) < 24


def test_every_problem_says_what_to_do(made, expected):
    broken = {"status": 1, "summary": "", "metadata": {"session_id": "", "delegation_depth": -1}, "artifacts": [{}]}
    assert all(problem.remedy for problem in check(broken, expected).problems)


NAMES = st.sampled_from([*RETURN, *METADATA, *ARTIFACT, *ERROR, *ARTIFACT_FIELDS, *ERROR_FIELDS])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["completed", "partial", "done", "s", "a.md", "../x", "\ud800", 10**400, float("nan")])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=5),
    max_leaves=20,
)
RETURNS = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["completed", "partial", "failed", "done", "in_progress", "x"]) | VALUES,
        "summary": st.text(max_size=8) | VALUES,
        "artifacts": st.lists(
            st.fixed_dictionaries({}, optional={"type": st.just("file"), "path": st.just("a.md") | VALUES}) | VALUES,
            max_size=3,
        )
        | VALUES,
        "metadata": st.fixed_dictionaries(
            {}, optional={"session_id": st.just("s") | VALUES, "agent_type": st.just("a"), "delegation_path": VALUES}
        )
        | VALUES,
        "errors": st.lists(st.just(TIMEOUT) | VALUES, max_size=2) | VALUES,
        "next_steps": VALUES,
        "session_id": st.just("s"),
    },
)
EXPECTED = st.builds(
    ExpectedReturn,
    session_id=st.none() | st.just("s"),
    agent_type=st.none() | st.just("a"),
    depth=st.none() | st.integers(0, 3),
    path=st.lists(st.text(max_size=3), max_size=3).map(tuple),
    workspace=st.none() | st.just("/work"),
)


@pytest.mark.rule("contract.check")
@settings(deadline=None)
@given(VALUES | RETURNS, EXPECTED, st.sampled_from(MODES))
def test_no_value_makes_it_raise_and_a_return_is_there_exactly_when_nothing_is_wrong(value, expected, mode):
    before = repr(value)
    checked = check(value, expected, mode)
    assert (checked.return_ is not None) == (not checked.problems) == checked.is_valid
    assert repr(value) == before
    for problem in checked.problems:
        assert problem.message.isprintable()
        assert len(problem.message) < 500
    msgspec.json.encode(checked)


@pytest.mark.rule("contract.lenient")
@settings(deadline=None)
@given(RETURNS, EXPECTED)
def test_what_lenient_reading_makes_is_a_return_by_the_strict_rules(value, expected):
    lenient = check(value, expected, "lenient")
    if lenient.return_ is not None:
        again = read(msgspec.json.encode(lenient.return_).decode(), expected)
        assert again.problems == ()
        assert again.return_ == lenient.return_


@settings(deadline=None)
@given(RETURNS, EXPECTED)
def test_a_correction_is_taken_only_where_it_is_needed(value, expected):
    strict = check(value, expected)
    if strict.is_valid:
        assert check(value, expected, "lenient") == strict


def test_a_return_survives_being_written_and_read(made):
    checked: CheckedReturn[Return] = check(
        made(status="failed", errors=[{**TIMEOUT, "code": "TIMEOUT"}], next_steps="x")
    )
    encoded = msgspec.json.encode(checked.return_)
    assert msgspec.json.decode(encoded, type=Return) == checked.return_
    assert json.loads(encoded) == made(status="failed", errors=[{**TIMEOUT, "code": "TIMEOUT"}], next_steps="x")


@pytest.mark.rule("contract.check")
def test_reading_a_report_parses_and_checks_it(made, expected):
    assert read(json.dumps(made()), expected).is_valid
    assert read("Done.", expected).problems[0].message == "Return is not valid JSON"
    corrections = read(json.dumps(made(status="done")).replace("}]", "},]"), expected, "lenient").corrections
    assert corrections == ("trailing commas were ignored", "status: done read as completed")


@pytest.mark.rule("contract.check")
@every_case(
    "path",
    [
        "a.md",
        "./a.md",
        "a/../b.md",
        "a//b.md",
        "..a",
        "a..",
        ".hidden",
        "/w/a.md",
        "/w",
        "/w/../w/a",
        "~a",
        "a b.md",
        "文書.md",
    ],
)
def test_a_path_inside_the_workspace_passes(path):
    assert why_outside(path, "/w") is None


@pytest.mark.rule("contract.check")
@every_case(
    "path",
    [
        "..", "../a", "a/../../b", "./..", "/etc/passwd", "/w/../etc", "/work", "/", "//w/a", "~", "~/a",
        "a\\..\\..\\b", "\\\\server\\share", "c:/a", "C:\\a", "http://x/a", "file:///w/a",
        "a\0b", "a\nb", "a\x1b[2Jb", "a" * 5000,
    ],
)  # fmt: skip
def test_a_path_that_leads_elsewhere_is_refused_with_a_reason(path):
    assert why_outside(path, "/w")


def test_without_a_workspace_no_absolute_path_is_inside():
    assert why_outside("/w/a", None)


def test_everything_is_beneath_the_root():
    assert why_outside("/etc/a", "/") is None


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "..", ".", "", "b c", "\\", "..\\", "~"]), min_size=1, max_size=6).map("/".join))
def test_no_path_that_passes_leaves_the_workspace(path):
    if path.strip() and why_outside(path, "/w/x") is None:
        landed = posixpath.normpath(posixpath.join("/w/x", path))
        assert landed == "/w/x" or landed.startswith("/w/x/")
