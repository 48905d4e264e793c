"""What a task says at its end: that it is complete, that it failed, or that it waits for subtasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from deputy.core.contract import Parsed, parse
from deputy.core.field_readers import FieldProblem
from deputy.core.forms import task_error, task_result_form
from deputy.core.outcome import Completed
from deputy.core.subtask.request import Continuation, read_notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.outcome import Outcome

CONTINUATION = "CONTINUATION"
_KEYS = ("status", "notes", "content")


class Asked(Struct, frozen=True, kw_only=True):
    """A report that asks for subtasks, and what it says beside."""

    content: str
    continuation: Continuation


class Malformed(Struct, frozen=True, kw_only=True):
    """A report that asks for subtasks in a way that cannot be carried out."""

    content: str
    problems: tuple[FieldProblem, ...]


def read_report(text: str) -> Asked | Malformed | None:
    """Whether a report is a CONTINUATION, whole or between prose; None when it is an end."""
    if CONTINUATION not in text:
        return None
    parsed = parse(text, "lenient", keys=_KEYS)
    value: object = parsed.value if isinstance(parsed, Parsed) else None
    if not isinstance(value, dict):
        return None
    result = cast("dict[str, Any]", value)
    if result.get("status") != CONTINUATION:
        return None
    content = result.get("content")
    told = content if isinstance(content, str) else ""
    read = read_notes(result.get("notes"))
    if isinstance(read, Continuation):
        return Asked(content=told, continuation=read)
    return Malformed(content=told, problems=read)


def invalid_request(problems: Sequence[FieldProblem]) -> dict[str, Any]:
    """A request that cannot be carried out, as a task result: with every problem."""
    listed = [f"{problem.field} {problem.message}." for problem in problems]
    return {
        "content": "",
        "status": "FAILED",
        "notes": {"error": failure("input_validation_failure", listed[0], problems=listed)},
    }


def failure(reason: str, message: str, **details: Any) -> dict[str, Any]:
    """An error of a task, in the form that tasks exchange."""
    return {"type": "TASK_FAILURE", "reason": reason, "message": message, "details": details}


def subtask_response(outcome: Outcome, *, subtask_type: str, depth: int) -> dict[str, Any]:
    """What a parent is told of one subtask: its result, or its failure with all that was found before."""
    if isinstance(outcome, Completed):
        return task_result_form(outcome)
    original = task_error(outcome)
    details: dict[str, Any] = {"subtaskType": subtask_type, "originalError": original, "nestingDepth": depth}
    partial = _partial(outcome)
    if partial:
        details["partialResults"] = partial
    return {
        "content": outcome.report,
        "status": "FAILED",
        "notes": {
            "outcome": outcome.status,
            "session_id": outcome.session_id,
            "error": failure(
                "subtask_failure",
                f"The subtask {subtask_type!r} ended {outcome.status}: {original['message']}",
                **details,
            ),
        },
    }


def _partial(outcome: Outcome) -> dict[str, Any]:
    found = {"report": outcome.report, "notes": outcome.notes, "artifacts": outcome.artifacts}
    return {name: value for name, value in found.items() if value}
