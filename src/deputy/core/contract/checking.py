"""Whether a value holds to the return contract: every problem at once, in a fixed order and wording."""

from __future__ import annotations

from msgspec import UNSET

from deputy.core.contract.fields import ARTIFACT, ERROR, METADATA, RETURN, Object, is_object
from deputy.core.contract.findings import Findings
from deputy.core.contract.form import (
    STATUSES,
    SUMMARY_LONG,
    SUMMARY_MAX,
    Artifact,
    Checked,
    Expected,
    Metadata,
    Mode,
    Return,
)
from deputy.core.contract.leniency import read_leniently
from deputy.core.contract.paths import why_outside
from deputy.core.contract.quoting import joined, kind_of, quoted
from deputy.core.errors import Error


def check(value: object, expected: Expected | None = None, mode: Mode = "strict") -> Checked[Return]:
    """The return that a value is, or all the problems that keep it from being one."""
    expected = expected or Expected()
    value, liberties = read_leniently(value, expected) if mode == "lenient" else (value, ())
    found = Findings()
    if is_object(value):
        _check_fields(value, expected, found)
    else:
        found.problem(f"Return is not a JSON object: found {kind_of(value)}", "Return one object and nothing else.")
    problems = found.problems.all()
    return Checked(
        return_=_made(value) if is_object(value) and not problems else None,
        problems=problems,
        warnings=found.warnings.all(),
        liberties=liberties,
    )


def _check_fields(value: Object, expected: Expected, found: Findings) -> None:
    _check_required(value, found)
    _check_status(value, found)
    _check_summary(value, found)
    _check_metadata(value, expected, found)
    _check_errors(value, found)
    _check_artifacts(value, expected, found)
    found.typed(value, "next_steps", RETURN)
    found.warn_unknown(value, RETURN)


def _check_required(value: Object, found: Findings) -> None:
    found.require(value, RETURN)
    if is_object(metadata := value.get("metadata")):
        found.require(metadata, METADATA, "metadata.")


def _check_status(value: Object, found: Findings) -> None:
    if "status" in value and value["status"] not in STATUSES:
        found.problem(f"Invalid status: {quoted(value['status'])}", f"Use one of {', '.join(STATUSES)}.")


def _check_summary(value: Object, found: Findings) -> None:
    summary = found.typed(value, "summary", RETURN)
    if summary is None:
        return
    if not summary.strip():
        found.problem("Summary cannot be empty", "Say in 2 to 5 sentences what was done and what came out.")
    elif len(summary) > SUMMARY_MAX:
        found.problem(f"Summary too long (max {SUMMARY_MAX} chars)", f"Shorten it: it has {len(summary):,} characters.")
    elif len(summary) > SUMMARY_LONG:
        found.warn(f"Summary is long: {len(summary)} of at most {SUMMARY_MAX} characters")


def _check_metadata(value: Object, expected: Expected, found: Findings) -> None:
    metadata = found.typed(value, "metadata", RETURN)
    if metadata is None:
        return
    told = found.filled(metadata, METADATA, "metadata.")
    _compare("Session ID", told["session_id"], expected.session_id, found)
    _compare("Agent type", told["agent_type"], expected.agent_type, found)
    _compare("Delegation depth", told["delegation_depth"], expected.depth, found)
    _compare_paths(told["delegation_path"], expected.path, found)
    seconds, elapsed = told["duration_seconds"], expected.elapsed_seconds
    if seconds is not None and elapsed is not None and seconds > elapsed + 1:
        found.warn(f"Duration is said to be {quoted(seconds)} s; the delegation began {elapsed:.0f} s ago")


def _compare(what: str, told: object, known: object, found: Findings) -> None:
    if told is not None and known is not None and told != known:
        found.problem(
            f"{what} mismatch: {quoted(told)} != {quoted(known)}", f"Return {quoted(known)}, as it was given."
        )


def _compare_paths(told: list[str] | None, known: tuple[str, ...], found: Findings) -> None:
    if told is None or not known or tuple(told) == known:
        return
    if told and tuple(told) == known[:-1]:
        found.warn(f"Delegation path ends with the caller: {quoted(known[-1])} is missing at its end")
    else:
        found.problem(
            f"Delegation path mismatch: {joined(told) or 'nothing'} != {joined(known)}",
            "Return the path as it was given.",
        )


def _check_errors(value: Object, found: Findings) -> None:
    status = value.get("status")
    for at, error in found.records(value, "errors"):
        found.require(error, ERROR, at)
        found.filled(error, ERROR, at)
    if status == "completed" and value.get("errors"):
        found.warn("Status is completed, yet errors are listed")
    elif status in STATUSES[1:]:
        advice = "Say what went wrong: type, message, recoverable and recommendation."
        if "errors" not in value:
            found.problem("Missing required field: errors", advice)
        elif value["errors"] == []:
            found.problem(f"Errors cannot be empty when the status is {status}", advice)


def _check_artifacts(value: Object, expected: Expected, found: Findings) -> None:
    for at, artifact in found.records(value, "artifacts"):
        found.require(artifact, ARTIFACT, at)
        path = found.filled(artifact, ARTIFACT, at)["path"]
        if path is not None and path.strip() and (reason := why_outside(path, expected.workspace)):
            found.problem(
                f"Artifact path outside the workspace: {quoted(path)} ({reason})",
                "Name the file by its path from the root of the workspace.",
            )


def _made(value: Object) -> Return:
    return Return(
        status=value["status"],
        summary=value["summary"],
        artifacts=tuple(_artifact(told) for told in value["artifacts"]),
        metadata=_metadata(value["metadata"]),
        errors=tuple(_error(told) for told in value.get("errors", ())),
        next_steps=value.get("next_steps", UNSET),
    )


def _artifact(told: Object) -> Artifact:
    return Artifact(type=told["type"], path=told["path"], summary=told.get("summary", UNSET))


def _metadata(told: Object) -> Metadata:
    return Metadata(
        session_id=told["session_id"],
        agent_type=told["agent_type"],
        delegation_depth=told.get("delegation_depth", UNSET),
        delegation_path=tuple(told["delegation_path"]) if "delegation_path" in told else UNSET,
        duration_seconds=told.get("duration_seconds", UNSET),
    )


def _error(told: Object) -> Error:
    return Error(
        type=told["type"],
        message=told["message"],
        code=told.get("code", UNSET),
        recoverable=told["recoverable"],
        recommendation=told["recommendation"],
    )
