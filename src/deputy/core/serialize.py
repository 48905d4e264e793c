"""Outcomes as JSON: our own form, the return form, the task-result form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, to_builtins

from deputy.core.errors import new_error
from deputy.core.outcome import Blocked, Completed

if TYPE_CHECKING:
    from deputy.core.outcome import Outcome


def outcome_dict(outcome: Outcome) -> dict[str, Any]:
    """The whole outcome, as `show`, `resume` and `cancel` print it."""
    lineage = outcome.lineage
    form: dict[str, Any] = {
        "session_id": outcome.session_id,
        "status": outcome.status,
        "summary": outcome.summary,
        "report": outcome.report,
        "notes": outcome.notes,
        "artifacts": outcome.artifacts,
        "branch": outcome.branch or None,
        "errors": outcome.errors,
        "warnings": outcome.warnings,
        "next_steps": outcome.next_steps,
        "usage": to_builtins(outcome.usage),
        "model": outcome.model,
        "backend": outcome.backend,
        "fallbacks": outcome.fallbacks,
        "isolated": outcome.is_isolated,
        "duration_seconds": outcome.duration_seconds,
        "delegation_depth": lineage.depth,
        "delegation_path": lineage.names,
        "deadline": lineage.deadline_shown,
    }
    if isinstance(outcome, Blocked):
        form["question"] = outcome.question
    if outcome.passed is not None:
        form["passed"] = outcome.passed
    return form


_CANCELLED = new_error("CANCELLED", "The delegation was cancelled.")

_REASON_OF_CODE = {
    "INVALID_REQUEST": "input_validation_failure",
    "TEMPLATE_NOT_FOUND": "template_not_found",
    "SUBTASK_FAILED": "subtask_failure",
    "CONTEXT_RETRIEVAL": "context_retrieval_failure",
    "CONTEXT_MATCHING": "context_matching_failure",
    "CONTEXT_PARSING": "context_parsing_failure",
}
_REASON_OF_TYPE = {
    "timeout": "execution_timeout",
    "cancelled": "execution_halted",
    "budget": "execution_halted",
    "quota": "execution_halted",
    "context_exhausted": "execution_halted",
    "grant": "execution_halted",
    "question": "execution_halted",
    "depth": "max_depth_exceeded",
    "cycle": "cycle_detected",
    "validation": "output_format_failure",
}
_EXHAUSTIONS = frozenset({"timeout", "budget", "quota", "context_exhausted"})


def task_result_dict(outcome: Outcome) -> dict[str, Any]:
    """The outcome as a task result: COMPLETE, or FAILED with an error, both with the notes."""
    notes: dict[str, Any] = {"outcome": outcome.status, "session_id": outcome.session_id}
    if outcome.notes:
        notes["findings"] = outcome.notes
    if outcome.artifacts:
        notes["artifacts"] = outcome.artifacts
    complete = isinstance(outcome, Completed)
    if not complete:
        notes["error"] = task_error(outcome)
    return {
        "content": outcome.report or outcome.summary,
        "status": "COMPLETE" if complete else "FAILED",
        "notes": notes,
    }


def task_error(outcome: Outcome) -> dict[str, Any]:
    """The first error of an outcome as `{type, reason, message, details}`."""
    error = outcome.errors[0] if outcome.errors else _CANCELLED
    code = "" if error.code is UNSET else error.code
    reason = _REASON_OF_CODE.get(code) or _REASON_OF_TYPE.get(error.type, "unexpected_error")
    return {
        "type": "RESOURCE_EXHAUSTION" if error.type in _EXHAUSTIONS else "TASK_FAILURE",
        "reason": reason,
        "message": error.message,
        "details": {"errors": outcome.errors, "summary": outcome.summary},
    }
