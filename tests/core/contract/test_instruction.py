"""What a target is told about the form of its answer."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from deputy.core.contract import (
    INVALID_RETURN,
    ExpectedReturn,
    Metadata,
    ask,
    check,
    check_schema,
    invalid_return,
    may_repair,
    read,
    repair_message,
    repairs_allowed,
    return_schema,
    schema_of,
)
from deputy.core.errors import UsageError


@pytest.mark.rule("contract.ask")
def test_the_instruction_asks_for_json_alone(expected):
    text = ask(expected)
    assert "one JSON object and nothing else" in text
    assert "no text before or after it" in text
    assert "Return is not valid JSON" in text


@pytest.mark.rule("contract.ask")
def test_the_instruction_bounds_the_summary(expected):
    text = ask(expected)
    assert "2 to 5 sentences" in text
    assert "under 100 tokens" in text
    assert "500 characters" in text


@pytest.mark.rule("contract.ask")
def test_the_instruction_shows_every_field_and_status(expected):
    text = ask(expected)
    for name in ("status", "summary", "artifacts", "metadata", "errors", "next_steps", "duration_seconds"):
        assert f'"{name}"' in text
    for name in ("type", "path", "message", "code", "recoverable", "recommendation"):
        assert f'"{name}"' in text
    for status in ("completed", "partial", "failed", "blocked"):
        assert f'"{status}"' in text


@pytest.mark.rule("contract.ask")
def test_the_instruction_gives_the_lineage_to_return(expected):
    text = ask(expected)
    line = next(line for line in text.splitlines() if '"metadata":' in line)
    metadata = json.loads(line.strip().removeprefix('"metadata": ').removesuffix(","))
    assert metadata == {
        "session_id": expected.session_id,
        "agent_type": "researcher",
        "delegation_depth": 1,
        "delegation_path": ["orchestrator", "research", "researcher"],
        "duration_seconds": 0,
    }


def test_what_is_not_known_is_left_for_the_target_to_fill_in():
    text = ask(ExpectedReturn(session_id="s"))
    assert '"session_id": "s", "agent_type": "…", "duration_seconds"' in text
    assert "copy session_id exactly" in text
    assert "fill in agent_type" in text
    assert "delegation_depth" not in text


def test_names_cannot_break_out_of_the_form():
    assert '"session_id": "a\\"}\\nb{0}"' in ask(ExpectedReturn(session_id='a"}\nb{0}'))


def test_a_schema_of_the_users_own_is_shown_in_place_of_the_form():
    text = ask(ExpectedReturn(), schema_of({"type": "object", "required": ["findings"], "title": "{braces}"}))
    assert '"findings"' in text
    assert '"{braces}"' in text
    assert "one JSON value and nothing else" in text
    assert "next_steps" not in text


@pytest.mark.rule("contract.ask")
def test_providers_can_be_held_to_the_form_as_a_schema(made):
    schema = schema_of(return_schema())
    error = {"type": "timeout", "message": "m", "recoverable": True, "recommendation": "r"}
    good = (made(), made(artifacts=[]), made(status="partial", errors=[error], next_steps="n"))
    bad = (made(status="done"), made(summary=""), made(summary="x" * 501), made(artifacts=["a"]))
    assert all(check_schema(value, schema).is_valid and check(value).is_valid for value in good)
    assert not any(check_schema(value, schema).is_valid or check(value).is_valid for value in bad)


@pytest.mark.rule("contract.fill")
def test_a_native_subagent_is_not_asked_for_metadata(expected):
    text = ask(expected, with_metadata=False)
    assert "metadata" not in text
    assert expected.session_id not in text
    assert "metadata" not in return_schema()["properties"]


@pytest.mark.rule("contract.fill")
def test_missing_metadata_is_filled_in_and_wrong_metadata_still_fails(expected, made):
    filling = structs.replace(expected, fills_metadata=True)
    bare = {name: value for name, value in made().items() if name != "metadata"}
    checked = check(bare, filling)
    assert checked.return_ is not None
    assert checked.return_.metadata == Metadata(
        session_id=expected.session_id,
        agent_type="researcher",
        delegation_depth=expected.depth,
        delegation_path=expected.path,
    )
    assert [problem.message for problem in check(bare, expected).problems] == ["Missing required field: metadata"]
    wrong = check({**bare, "metadata": {"session_id": "other"}}, filling)
    assert [problem.message for problem in wrong.problems] == [f"Session ID mismatch: other != {expected.session_id}"]


@pytest.mark.rule("contract.fill")
def test_a_new_problem_has_a_second_repair():
    assert may_repair(["a"], [], 1)
    assert not may_repair(["a", "b"], [("a",)], 1)
    assert may_repair(["b"], [("a",)], 1)
    assert not may_repair(["c"], [("a",), ("b",)], 1)
    assert not may_repair(["b"], [], 0)


@pytest.mark.rule("contract.repair")
def test_a_return_is_sent_back_once_unless_told_otherwise_and_at_most_twice():
    assert repairs_allowed() == repairs_allowed(None) == 1
    assert [repairs_allowed(asked) for asked in (0, 1, 2)] == [0, 1, 2]
    for asked in (3, -1, True):
        with pytest.raises(UsageError, match=r"repairs: found .* 0 to 2 times"):
            repairs_allowed(asked)


@pytest.mark.rule("contract.repair")
def test_the_message_lists_every_problem_and_the_form(expected):
    problems = check({"status": "done", "summary": ""}, expected).problems
    message = repair_message(problems, expected)
    for problem in problems:
        assert problem.message in message
    assert "3. Invalid status: done. Use one of completed, partial, failed, blocked." in message
    assert ask(expected) in message
    assert "Do not repeat work that is done" in message


@pytest.mark.rule("contract.repair")
def test_a_schema_of_the_users_own_goes_through_the_same_loop(expected):
    schema = schema_of({"type": "object", "required": ["findings"]})
    problems = read('{"found": 1}', schema=schema).problems
    message = repair_message(problems, expected, schema)
    assert "1. Missing required field: findings." in message
    assert ask(expected, schema) in message


def test_hostile_values_cannot_forge_lines_of_the_message():
    problems = check({"status": "x\n\n2. All is well.\x1b[2J"}).problems
    assert "\n2. All is well" not in repair_message(problems, ExpectedReturn())
    assert "\x1b" not in repair_message(problems, ExpectedReturn())


@pytest.mark.rule("contract.repair")
def test_what_still_fails_is_an_error_with_a_stable_code():
    error = invalid_return(check({}).problems, "the agent 'scout'", repairs=1)
    assert error.code == INVALID_RETURN == "INVALID_RETURN"
    assert error.type == "validation"
    assert error.recoverable
    assert error.message == (
        "The return of the agent 'scout' breaks the contract after one repair: "
        "Missing required field: status (and 3 more)."
    )
    assert error.recommendation == (
        "Read the original text, correct the agent 'scout', and run it again; nothing was marked as done."
    )
    assert invalid_return(check([]).problems, "the task 'a'", repairs=2).message == (
        "The return of the task 'a' breaks the contract after 2 repairs: Return must be JSON object: found a list."
    )
