"""Task results: read a CONTINUATION from a report, and write the results of subtasks for the parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import DecodeError, Struct, json

from deputy.core.contract import Parsed, parse
from deputy.core.contract.return_parser import find_objects
from deputy.core.field_readers import FieldProblem
from deputy.core.outcome import Completed, Rejected
from deputy.core.refinement import verdict_notes, verdict_of_report
from deputy.core.serialize import task_error, task_result_dict
from deputy.core.subtask.context_passing import EarlierResult
from deputy.core.subtask.subtask_request import Continuation, read_notes
from deputy.core.text_calls import PROSE_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.outcome import Outcome

CONTINUATION = "CONTINUATION"
EVALUATION = "evaluation"
_KEYS = ("status", "notes", "content")


class SubtasksRequested(Struct, frozen=True, kw_only=True):
    """A report that requests subtasks, and its content."""

    content: str
    continuation: Continuation


class MalformedRequest(Struct, frozen=True, kw_only=True):
    """A report that requests subtasks with invalid fields."""

    content: str
    problems: tuple[FieldProblem, ...]


def read_report(text: str, *, is_alone: bool = False) -> SubtasksRequested | MalformedRequest | None:
    """The CONTINUATION in a report, also between prose, unless it must be alone; None for a final report."""
    if CONTINUATION not in text or (is_alone and _prose(text) > PROSE_MAX):
        return None
    parsed = parse(text, "lenient", keys=_KEYS)
    value: object = parsed.value if isinstance(parsed, Parsed) else None
    if not isinstance(value, dict):
        return None
    result = cast("dict[str, Any]", value)
    if result.get("status") != CONTINUATION:
        return None
    content = result.get("content")
    decoded = content if isinstance(content, str) else ""
    read = read_notes(result.get("notes"))
    if isinstance(read, Continuation):
        return SubtasksRequested(content=decoded, continuation=read)
    return MalformedRequest(content=decoded, problems=read)


def _prose(text: str) -> int:
    return len(text) - sum(span.end - span.start for span in find_objects(text))


def invalid_request(problems: Sequence[FieldProblem]) -> dict[str, Any]:
    """The task result of an invalid request, with all its problems."""
    listed = [f"{problem.field} {problem.message}." for problem in problems]
    return failed_result("input_validation_failure", listed[0], problems=listed)


def failure(reason: str, message: str, **details: Any) -> dict[str, Any]:
    """A task error in its JSON form."""
    return {"type": "TASK_FAILURE", "reason": reason, "message": message, "details": details}


def subtask_response(outcome: Outcome, *, subtask_type: str, depth: int, subtype: str = "") -> dict[str, Any]:
    """The result or failure of one subtask for its parent, with its passed context and usage."""
    form = task_result_dict(outcome) if isinstance(outcome, Completed) else _failed(outcome, subtask_type, depth)
    notes: dict[str, Any] = {"type": subtask_type, **form["notes"]}
    if EVALUATION in (subtype, subtask_type) and isinstance(outcome, Completed):
        notes |= verdict_notes(verdict_of_report(outcome.report))
    if outcome.passed is not None:
        notes["passed"] = outcome.passed
    if not isinstance(outcome, Rejected):
        notes["usage"] = {
            "input": outcome.usage.input,
            "output": outcome.usage.output,
            "cost": outcome.usage.cost,
            "estimated": outcome.usage.estimated,
        }
        notes["duration_seconds"] = outcome.duration_seconds
    return {**form, "notes": notes}


def _failed(outcome: Outcome, subtask_type: str, depth: int) -> dict[str, Any]:
    original = task_error(outcome)
    details: dict[str, Any] = {"subtaskType": subtask_type, "originalError": original, "nestingDepth": depth}
    partial = _partial(outcome)
    if partial:
        details["partialResults"] = partial
    if isinstance(outcome, Rejected):
        # A rejected subtask did not start: its refusal is the error.
        decoded = {"subtaskType": subtask_type, "nestingDepth": depth, "advice": outcome.remedy}
        error = failure(original["reason"], original["message"], **decoded)
    else:
        message = f"The subtask {subtask_type!r} ended {outcome.status}: {original['message']}"
        error = failure("subtask_failure", message, **details)
    return {
        "content": outcome.report,
        "status": "FAILED",
        "notes": {"outcome": outcome.status, "session_id": outcome.session_id, "error": error},
    }


def _partial(outcome: Outcome) -> dict[str, Any]:
    found = {"report": outcome.report, "notes": outcome.notes, "artifacts": outcome.artifacts}
    return {name: value for name, value in found.items() if value}


def failed_result(reason: str, message: str, **details: Any) -> dict[str, Any]:
    """The task result of a request that failed before it started."""
    return {"content": "", "status": "FAILED", "notes": {"error": failure(reason, message, **details)}}


def results_in(text: str) -> list[EarlierResult]:
    """The subtask results in a tool result of the parent."""
    try:
        decoded: Any = json.decode(text)
    except (DecodeError, RecursionError):
        return []
    several: Any = cast("dict[str, Any]", decoded).get("results") if isinstance(decoded, dict) else None
    found = cast("list[Any]", several if isinstance(several, list) else [decoded])
    return [earlier for one in found if (earlier := earlier_of(one)) is not None]


def earlier_of(response: object) -> EarlierResult | None:
    """An earlier subtask result, to pass to a later subtask."""
    if not isinstance(response, dict):
        return None
    form = cast("dict[str, Any]", response)
    notes = form.get("notes")
    fields = cast("dict[str, Any]", notes) if isinstance(notes, dict) else {}
    if not isinstance(fields.get("type"), str):
        return None
    found = fields.get("findings") or ()
    content = form.get("content")
    return EarlierResult(
        type=fields["type"], notes=tuple(map(str, found)), output=content if isinstance(content, str) else ""
    )
