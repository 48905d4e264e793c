"""Read returns leniently: convert what real agents write to the form of the contract, and list every correction."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast

from deputy.core.contract.quote import quoted
from deputy.core.contract.return_types import METADATA, STATUSES, BoundedList, ExpectedReturn, Object

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.core.contract.return_types import Status

STATUS_SYNONYMS: dict[Status, str] = {
    "completed": """
        complete done success successful succeeded finished ok okay passed resolved fixed
        researched planned implemented revised reviewed documented tested fulfilled
        report_ready plan_ready research_complete research_completed plan_complete plan_completed
        implementation_complete implementation_completed review_complete review_completed
        task_complete task_completed all_done successfully_completed completed_successfully
    """,
    "partial": """
        in_progress partially_complete partially_completed partial_success partially_done incomplete
        ongoing working continuing started timeout timed_out interrupted unfinished
        completed_with_errors partially_implemented
    """,
    "failed": "fail failure error errored unsuccessful aborted crashed",
    "blocked": """
        waiting needs_input needs_information needs_clarification needs_human awaiting_input
        awaiting_human_input input_required on_hold pending_input waiting_for_input requires_input
    """,
}

ARTIFACT_FIELDS = {
    "file": "path",
    "file_path": "path",
    "filepath": "path",
    "filename": "path",
    "location": "path",
    "kind": "type",
    "description": "summary",
}

ERROR_FIELDS = {
    "error": "message",
    "description": "message",
    "details": "message",
    "suggestion": "recommendation",
    "kind": "type",
    "error_type": "type",
    "error_code": "code",
}

ARTIFACT_TYPE = "file"
ERROR_TYPE = "execution"
AGENT_TYPE = "unknown"
RECOMMENDATION = "Read the report, then decide whether to run the delegation again."


Corrections = BoundedList[str]

_ARROWS = ("→", "->", ">", ",", "/")


def read_leniently(value: object, expected: ExpectedReturn) -> tuple[object, tuple[str, ...]]:
    """A copy of the value in the form of the contract, as far as its meaning is clear, and the corrections."""
    if not isinstance(value, dict):
        return value, ()
    corrections: Corrections = BoundedList(str)
    given = _without_nulls(cast("Object", value), "", corrections)
    _read_status(given, corrections)
    _read_metadata(given, expected, corrections)
    _read_next_steps(given, corrections)
    _read_records(given, "artifacts", _read_artifact, corrections)
    _read_records(given, "errors", _error_reader(_error_defaults(given)), corrections)
    _read_absent_errors(given, corrections)
    return given, corrections.all()


def _without_nulls(record: Object, at: str, corrections: Corrections) -> Object:
    for name, value in record.items():
        if value is None:
            corrections.add(f"{at}{quoted(name)}: null read as absent")
    return {name: value for name, value in record.items() if value is not None}


def _read_status(given: Object, corrections: Corrections) -> None:
    status = given.get("status")
    if not isinstance(status, str) or status in STATUSES:
        return
    letters = "".join(letter if letter.isalnum() else " " for letter in status[:64].lower())
    meant = _meanings().get("_".join(letters.split()))
    if meant is not None:
        given["status"] = meant
        corrections.add(f"status: {quoted(status)} read as {meant}")


@cache
def _meanings() -> dict[str, str]:
    written = {word: status for status, words in STATUS_SYNONYMS.items() for word in words.split()}
    return written | {status: status for status in STATUSES}


def _read_metadata(given: Object, expected: ExpectedReturn, corrections: Corrections) -> None:
    metadata = given.get("metadata", {})
    if not isinstance(metadata, dict):
        return
    metadata = _without_nulls(cast("Object", metadata), "metadata.", corrections)
    for name in METADATA:
        if name in given and name not in metadata:
            metadata[name] = given.pop(name)
            corrections.add(f"{name}: read from the top level into metadata")
    for name, kind in (("delegation_depth", int), ("duration_seconds", float)):
        _read_number(metadata, name, kind, corrections)
    _read_path(metadata, corrections)
    if metadata and "agent_type" not in metadata:
        metadata["agent_type"] = _agent_type(metadata, expected)
        corrections.add(f"metadata.agent_type: missing, taken to be {quoted(metadata['agent_type'])}")
    if metadata or "metadata" in given:
        given["metadata"] = metadata


def _agent_type(metadata: Object, expected: ExpectedReturn) -> str:
    path = metadata.get("delegation_path")
    last = cast("list[object]", path)[-1] if isinstance(path, list) and path else None
    return expected.agent_type or (last if isinstance(last, str) and last.strip() else AGENT_TYPE)


def _read_number(metadata: Object, name: str, kind: type[int] | type[float], corrections: Corrections) -> None:
    written = metadata.get(name)
    if not isinstance(written, str) or len(written) > 20:
        return
    try:
        metadata[name] = kind(written)
    except ValueError:
        return
    corrections.add(f"metadata.{name}: a number written as a string")


def _read_path(metadata: Object, corrections: Corrections) -> None:
    written = metadata.get("delegation_path")
    if not isinstance(written, str):
        return
    arrow = next((arrow for arrow in _ARROWS if arrow in written), None)
    metadata["delegation_path"] = [name.strip() for name in written.split(arrow)] if arrow else [written.strip()]
    corrections.add("metadata.delegation_path: a string read as a list")


def _read_next_steps(given: Object, corrections: Corrections) -> None:
    steps = given.get("next_steps")
    if isinstance(steps, list) and all(isinstance(step, str) for step in cast("list[object]", steps)):
        given["next_steps"] = "\n".join(cast("list[str]", steps))
        corrections.add("next_steps: a list read as lines")


def _read_records(
    given: Object, name: str, read: Callable[[object, str, Corrections], object], corrections: Corrections
) -> None:
    if name not in given:
        return
    records: object = given[name]
    if isinstance(records, str | dict):
        records = cast("list[object]", [records])
        corrections.add(f"{name}: one item read as a list")
    if isinstance(records, list):
        given[name] = [
            read(record, f"{name}[{at}]", corrections) for at, record in enumerate(cast("list[object]", records))
        ]


def _read_artifact(given: object, at: str, corrections: Corrections) -> object:
    if isinstance(given, str):
        corrections.add(f"{at}: a bare path read as an artifact of type {ARTIFACT_TYPE}")
        return {"type": ARTIFACT_TYPE, "path": given}
    if not isinstance(given, dict):
        return given
    artifact = _renamed(_without_nulls(cast("Object", given), f"{at}.", corrections), ARTIFACT_FIELDS, at, corrections)
    _fill(artifact, "type", ARTIFACT_TYPE, at, corrections)
    return artifact


def _error_reader(defaults: Object) -> Callable[[object, str, Corrections], object]:
    def read(given: object, at: str, corrections: Corrections) -> object:
        if isinstance(given, str):
            corrections.add(f"{at}: a bare message read as an error of type {ERROR_TYPE}")
            return {"message": given, **defaults}
        if not isinstance(given, dict):
            return given
        error = _renamed(_without_nulls(cast("Object", given), f"{at}.", corrections), ERROR_FIELDS, at, corrections)
        for name, value in defaults.items():
            _fill(error, name, value, at, corrections)
        return error

    return read


def _error_defaults(given: Object) -> Object:
    """Values for fields that an error lacks, derived from its return."""
    steps = given.get("next_steps")
    return {
        "type": ERROR_TYPE,
        "recoverable": given.get("status") == "partial",
        "recommendation": steps if isinstance(steps, str) and steps.strip() else RECOMMENDATION,
    }


def _read_absent_errors(given: Object, corrections: Corrections) -> None:
    """Use the summary as the error of a return that is not completed and has no errors."""
    summary = given.get("summary")
    if given.get("status") not in STATUSES[1:] or given.get("errors", []) != []:
        return
    if isinstance(summary, str) and summary.strip():
        given["errors"] = [{"message": summary, **_error_defaults(given)}]
        corrections.add("errors: none given, the summary read as one")


def _renamed(record: Object, names: dict[str, str], at: str, corrections: Corrections) -> Object:
    for written, meant in names.items():
        if written in record and meant not in record:
            record[meant] = record.pop(written)
            corrections.add(f"{at}.{written}: read as {meant}")
    return record


def _fill(record: Object, name: str, value: object, at: str, corrections: Corrections) -> None:
    if name not in record:
        record[name] = value
        corrections.add(f"{at}.{name}: missing, taken to be {quoted(value)}")
