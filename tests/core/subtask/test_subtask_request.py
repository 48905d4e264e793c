from typing import Any

import pytest
from tests.support.every_case import every_case

from deputy.core.field_readers import FieldProblem
from deputy.core.subtask.subtask_request import (
    MAX_REQUESTS,
    SUBTASK_SCHEMA,
    Continuation,
    SubtaskRequest,
    read_continuation,
    read_notes,
)
from deputy.core.subtask.subtask_result import MalformedRequest, SubtasksRequested, invalid_request, read_report

GOOD: dict[str, Any] = {"type": "verification", "description": "Verify the code.", "inputs": {"code": "x = 1"}}


def fields(problems: object) -> list[str]:
    assert isinstance(problems, tuple)
    return [problem.field for problem in problems]


@pytest.mark.rule("subtask.flow")
def test_the_tool_and_the_text_lead_to_the_same_request() -> None:
    called = read_continuation({"requests": [GOOD]})
    written = read_report(
        'Now: {"content": "so far", "status": "CONTINUATION", "notes": {"subtask_request": '
        '{"type": "verification", "description": "Verify the code.", "inputs": {"code": "x = 1"}}}}'
    )
    assert isinstance(written, SubtasksRequested)
    assert written.content == "so far"
    assert called == written.continuation
    assert called == Continuation(
        requests=(SubtaskRequest(type="verification", description="Verify the code.", inputs={"code": "x = 1"}),)
    )


def test_a_report_that_is_an_end_is_no_continuation() -> None:
    for text in ("Done.", '{"status": "COMPLETE", "content": "x", "notes": {}}', "CONTINUATION is a word", "{}"):
        assert read_report(text) is None


@pytest.mark.rule("subtask.bad")
@every_case("notes", [None, {}, [], "x", {"subtask_request": None}, {"subtask_request": []}])
def test_a_continuation_without_a_request_is_malformed(notes: object) -> None:
    import json

    found = read_report(json.dumps({"status": "CONTINUATION", "content": "c", "notes": notes}))
    assert isinstance(found, MalformedRequest)
    result = invalid_request(found.problems)
    assert result["status"] == "FAILED"
    assert result["notes"]["error"]["reason"] == "input_validation_failure"


@pytest.mark.rule("subtask.bad")
def test_all_problems_of_a_request_are_reported_at_once() -> None:
    problems = read_continuation(
        {
            "requests": [
                {
                    "type": " ",
                    "inputs": [],
                    "template_hints": "a",
                    "return_expectations": 3,
                    "max_depth": 0,
                    "subtype": "",
                    "file_paths": [1],
                    "context_management": {"inherit_context": "all"},
                    "colour": "red",
                }
            ],
            "join": "most",
            "quorum": -1,
        }
    )
    assert fields(problems) == [
        "requests[0].colour",
        "requests[0].type",
        "requests[0].description",
        "requests[0].inputs",
        "requests[0].template_hints",
        "requests[0].return_expectations",
        "requests[0].max_depth",
        "requests[0].subtype",
        "requests[0].file_paths",
        "requests[0].context_management.inherit_context",
        "join",
        "quorum",
    ]


@pytest.mark.rule("subtask.bad")
@every_case("arguments", [None, [], {}, {"requests": []}, {"requests": GOOD}, {"requests": [GOOD] * 65}])
def test_a_call_must_hold_requests(arguments: object) -> None:
    assert fields(read_continuation(arguments))[0] in ("requests", "arguments")
    assert SUBTASK_SCHEMA["properties"]["requests"]["maxItems"] == MAX_REQUESTS


@pytest.mark.rule("subtask.bad")
def test_the_old_form_is_read_as_a_request_of_that_type_with_a_warning() -> None:
    read = read_notes({"task": "verify_code", "code": "x = 1"})
    assert isinstance(read, Continuation)
    assert read.requests == (SubtaskRequest(type="verify_code", description="verify code", inputs={"code": "x = 1"}),)
    assert "old form" in read.warnings[0]
    assert fields(read_notes({"task": 3})) == ["notes.task"]


@pytest.mark.parametrize(("join", "needed"), [({}, 3), ({"join": "any"}, 1), ({"join": "quorum", "quorum": 2}, 2)])
def test_a_join_says_how_many_must_complete(join: dict[str, Any], needed: int) -> None:
    read = read_continuation({"requests": [GOOD, GOOD, GOOD], **join})
    assert isinstance(read, Continuation)
    assert read.needed == needed


def test_a_quorum_needs_its_number_and_no_more_than_there_are() -> None:
    assert fields(read_continuation({"requests": [GOOD], "join": "quorum"})) == ["quorum"]
    assert fields(read_continuation({"requests": [GOOD], "join": "quorum", "quorum": 2})) == ["quorum"]


def test_a_problem_names_what_was_found() -> None:
    problems = read_continuation({"requests": [{"type": 7, "description": "d"}]})
    assert problems == (FieldProblem("requests[0].type", "is 7; it must be a string of 1 to 64 characters"),)


@pytest.mark.parametrize("placeholder", ["…", " ... "])
def test_the_placeholders_of_an_example_are_no_request(placeholder: str):
    notes = {"subtask_request": {"type": placeholder, "description": placeholder}}
    problems = read_notes(notes)
    assert fields(problems) == ["notes.subtask_request.type", "notes.subtask_request.description"]
    assert problems[0].message == f"is {placeholder!r}; it must be your own words"
