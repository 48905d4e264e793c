"""What a target is told about the form of its answer."""

from __future__ import annotations

import json

import pytest

from deputy.core.contract import ExpectedReturn, ask, check, check_schema, return_schema, schema_of


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
    bad = (made(status="done"), made(summary=""), made(summary="x" * 501), made(metadata={}), made(artifacts=["a"]))
    assert all(check_schema(value, schema).is_valid and check(value).is_valid for value in good)
    assert not any(check_schema(value, schema).is_valid or check(value).is_valid for value in bad)
