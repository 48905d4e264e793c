"""Check a value against the return contract: report all problems, in a fixed order and wording."""

from __future__ import annotations

from msgspec import UNSET

from deputy.core.contract.artifact_paths import why_outside
from deputy.core.contract.fields import ARTIFACT, ERROR, METADATA, RETURN, Object, is_object
from deputy.core.contract.findings import ContractFindings
from deputy.core.contract.leniency import read_leniently
from deputy.core.contract.quote import joined, kind_of, quoted
from deputy.core.contract.return_types import (
    STATUSES,
    SUMMARY_LONG,
    SUMMARY_MAX,
    Artifact,
    CheckedReturn,
    ExpectedReturn,
    Metadata,
    Mode,
    Return,
)
from deputy.core.errors import Error


def check(value: object, expected: ExpectedReturn | None = None, mode: Mode = "strict") -> CheckedReturn[Return]:
    """The value as a `Return`, or all its problems."""
    expected = expected or ExpectedReturn()
    value, liberties = read_leniently(value, expected) if mode == "lenient" else (value, ())
    found = ContractFindings()
    if is_object(value):
        _check_fields(value, expected, found)
    else:
        found.problem(f"Return is not a JSON object: found {kind_of(value)}", "Return one object and nothing else.")
    problems = found.problems.all()
    return CheckedReturn(
        return_=_made(value) if is_object(value) and not problems else None,
        problems=problems,
        warnings=found.warnings.all(),
        liberties=liberties,
    )


def _check_fields(value: Object, expected: ExpectedReturn, found: ContractFindings) -> None:
    _check_required(value, found)
    _check_status(value, found)
    _check_summary(value, found)
    _check_metadata(value, expected, found)
    _check_errors(value, found)
    _check_artifacts(value, expected, found)
    found.typed(value, "next_steps", RETURN)
    found.warn_unknown(value, RETURN)


def _check_required(value: Object, found: ContractFindings) -> None:
    found.require(value, RETURN)
    if is_object(metadata := value.get("metadata")):
        found.require(metadata, METADATA, "metadata.")


def _check_status(value: Object, found: ContractFindings) -> None:
    if "status" in value and value["status"] not in STATUSES:
        found.problem(f"Invalid status: {quoted(value['status'])}", f"Use one of {', '.join(STATUSES)}.")


def _check_summary(value: Object, found: ContractFindings) -> None:
    summary = found.typed(value, "summary", RETURN)
    if summary is None:
        return
    if not summary.strip():
        found.problem("Summary cannot be empty", "Write 2 to 5 sentences about the work and its result.")
    elif len(summary) > SUMMARY_MAX:
        found.problem(f"Summary too long (max {SUMMARY_MAX} chars)", f"Shorten it: it has {len(summary):,} characters.")
    elif len(summary) > SUMMARY_LONG:
        found.warn(f"Summary is long: {len(summary)} of at most {SUMMARY_MAX} characters")


def _check_metadata(value: Object, expected: ExpectedReturn, found: ContractFindings) -> None:
    metadata = found.typed(value, "metadata", RETURN)
    if metadata is None:
        return
    given = found.filled(metadata, METADATA, "metadata.")
    _compare("Session ID", given["session_id"], expected.session_id, found)
    _compare("Agent type", given["agent_type"], expected.agent_type, found)
    _compare("Delegation depth", given["delegation_depth"], expected.depth, found)
    _compare_paths(given["delegation_path"], expected.path, found)
    seconds, elapsed = given["duration_seconds"], expected.elapsed_seconds
    if seconds is not None and elapsed is not None and seconds > elapsed + 1:
        found.warn(f"Duration is {quoted(seconds)} s, but the delegation began {elapsed:.0f} s ago")


def _compare(what: str, given: object, known: object, found: ContractFindings) -> None:
    if given is not None and known is not None and given != known:
        found.problem(
            f"{what} mismatch: {quoted(given)} != {quoted(known)}", f"Return {quoted(known)}, as given in the prompt."
        )


def _compare_paths(given: list[str] | None, known: tuple[str, ...], found: ContractFindings) -> None:
    if given is None or not known or tuple(given) == known:
        return
    if given and tuple(given) == known[:-1]:
        found.warn(f"Delegation path ends with the caller: {quoted(known[-1])} is missing at the end")
    else:
        found.problem(
            f"Delegation path mismatch: {joined(given) or 'nothing'} != {joined(known)}",
            "Return the path as given in the prompt.",
        )


def _check_errors(value: Object, found: ContractFindings) -> None:
    status = value.get("status")
    for at, error in found.records(value, "errors"):
        found.require(error, ERROR, at)
        found.filled(error, ERROR, at)
    if status == "completed" and value.get("errors"):
        found.warn("Status is completed, but errors are listed")
    elif status in STATUSES[1:]:
        remedy = "Say what went wrong: type, message, recoverable and recommendation."
        if "errors" not in value:
            found.problem("Missing required field: errors", remedy)
        elif value["errors"] == []:
            found.problem(f"Errors cannot be empty when the status is {status}", remedy)


def _check_artifacts(value: Object, expected: ExpectedReturn, found: ContractFindings) -> None:
    for at, artifact in found.records(value, "artifacts"):
        found.require(artifact, ARTIFACT, at)
        path = found.filled(artifact, ARTIFACT, at)["path"]
        if path is not None and path.strip() and (reason := why_outside(path, expected.workspace)):
            found.problem(
                f"Artifact path outside the workspace: {quoted(path)} ({reason})",
                "Give the path from the root of the workspace.",
            )


def _made(value: Object) -> Return:
    return Return(
        status=value["status"],
        summary=value["summary"],
        artifacts=tuple(_artifact(given) for given in value["artifacts"]),
        metadata=_metadata(value["metadata"]),
        errors=tuple(_error(given) for given in value.get("errors", ())),
        next_steps=value.get("next_steps", UNSET),
    )


def _artifact(given: Object) -> Artifact:
    return Artifact(type=given["type"], path=given["path"], summary=given.get("summary", UNSET))


def _metadata(given: Object) -> Metadata:
    return Metadata(
        session_id=given["session_id"],
        agent_type=given["agent_type"],
        delegation_depth=given.get("delegation_depth", UNSET),
        delegation_path=tuple(given["delegation_path"]) if "delegation_path" in given else UNSET,
        duration_seconds=given.get("duration_seconds", UNSET),
    )


def _error(given: Object) -> Error:
    return Error(
        type=given["type"],
        message=given["message"],
        code=given.get("code", UNSET),
        recoverable=given["recoverable"],
        recommendation=given["recommendation"],
    )
