"""Check a value against the return contract: report all problems, in a fixed order and wording."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs

from deputy.core.contract.leniency import read_leniently
from deputy.core.contract.quote import joined, kind_of, quoted
from deputy.core.contract.return_parser import parse
from deputy.core.contract.return_types import (
    ARTIFACT,
    ERROR,
    METADATA,
    RETURN,
    STATUSES,
    SUMMARY_LONG,
    SUMMARY_MAX,
    Artifact,
    BoundedList,
    CheckedReturn,
    ContractProblem,
    ExpectedReturn,
    Fields,
    Metadata,
    Mode,
    Object,
    Return,
    is_object,
)
from deputy.core.contract.user_schema import check_schema
from deputy.core.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.core.contract.user_schema import Schema


def check(value: object, expected: ExpectedReturn | None = None, mode: Mode = "strict") -> CheckedReturn[Return]:
    """The value as a `Return`, or all its problems."""
    expected = expected or ExpectedReturn()
    value, corrections = read_leniently(value, expected) if mode == "lenient" else (value, ())
    found = ContractFindings()
    if is_object(value) and expected.fills_metadata:
        value = _with_metadata(value, expected)
    if is_object(value):
        _check_fields(value, expected, found)
    else:
        found.problem(f"Return must be JSON object: found {kind_of(value)}", "Return one object and nothing else.")
    problems = found.problems.all()
    return CheckedReturn(
        return_=_made(value) if is_object(value) and not problems else None,
        problems=problems,
        warnings=found.warnings.all(),
        corrections=corrections,
    )


def _with_metadata(value: Object, expected: ExpectedReturn) -> Object:
    """The return with the metadata that it lacks."""
    given = value.get("metadata", {})
    if not is_object(given):
        return value
    last = {"agent_type": expected.path[-1]} if expected.path else {}
    return {**value, "metadata": {**last, **expected.known_metadata, **given}}


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


RULE = "contract.check"


class ContractFindings:
    """The problems and warnings of one check."""

    __slots__ = ("problems", "warnings")

    def __init__(self) -> None:
        self.problems: BoundedList[ContractProblem] = BoundedList(lambda more: ContractProblem(rule=RULE, message=more))
        self.warnings: BoundedList[str] = BoundedList(str)

    def problem(self, message: str, remedy: str) -> None:
        """Add a problem; the value is not a return."""
        self.problems.add(ContractProblem(rule=RULE, message=message, remedy=remedy))

    def warn(self, message: str) -> None:
        """Add a warning."""
        self.warnings.add(message)

    def require(self, record: Object, fields: Fields, at: str = "") -> None:
        """Report the required fields that are absent."""
        for name, field in fields.items():
            if field.is_required and name not in record:
                self.problem(f"Missing required field: {at}{name}", f"Add {at}{name}.")

    def typed(self, record: Object, name: str, fields: Fields, at: str = "") -> Any:
        """The value of a field; None when it is absent or has the wrong type, which is reported."""
        if name not in record:
            return None
        given = record[name]
        if fields[name].holds(given):
            return given
        self._wrong_type(f"{at}{name}", fields[name].type_name, given, is_optional=not fields[name].is_required)
        return None

    def filled(self, record: Object, fields: Fields, at: str) -> dict[str, Any]:
        """The values of all fields of a record, as in `typed`; a required string must not be blank."""
        given = {name: self.typed(record, name, fields, at) for name in fields}
        for name, value in given.items():
            if fields[name].is_required and isinstance(value, str) and not value.strip():
                self.problem(f"Empty field: {at}{name}", f"Fill in {at}{name}.")
        self.warn_unknown(record, fields, at)
        return given

    def records(self, value: Object, name: str) -> Iterator[tuple[str, Object]]:
        """The objects in a list of the return, each with its location."""
        for index, item in enumerate(self.typed(value, name, RETURN) or ()):
            if is_object(item):
                yield f"{name}[{index}].", item
            else:
                self._wrong_type(f"{name}[{index}]", "an object", item)

    def warn_unknown(self, record: Object, fields: Fields, at: str = "") -> None:
        """Warn of unknown fields."""
        for name in record:
            if name not in fields:
                self.warn(f"Unknown field ignored: {at}{quoted(name)}")

    def _wrong_type(self, at: str, type_name: str, given: object, *, is_optional: bool = False) -> None:
        # A number may be out of range: then its type would not explain the problem.
        found = quoted(given) if kind_of(given) == "a number" else kind_of(given)
        self.problem(
            f"Wrong type for {at}: expected {type_name}, found {found}",
            f"Write {type_name}, or leave {at} out." if is_optional else f"Write {type_name}.",
        )


PATH_MAX = 4096


def why_outside(path: str, workspace: str | None) -> str | None:
    """Why a path is outside of the workspace; None when it is inside."""
    if len(path) > PATH_MAX:
        return f"it is longer than {PATH_MAX:,} characters"
    if not path.isprintable() and any(letter < " " or "\x7f" <= letter <= "\x9f" for letter in path):
        return "it holds control characters"
    if "://" in path:
        return "it is an address, not a path"
    # A backslash is a separator on Windows; it must not hide a `..`.
    plain = path.replace("\\", "/")
    if plain == "~" or plain.startswith("~/"):
        return "it starts in a home directory"
    if plain[1:2] == ":" and plain[0].isalpha():
        return "it starts with a drive letter"
    if plain.startswith("/"):
        return None if workspace and _is_beneath(plain, workspace) else "it is absolute and lies elsewhere"
    normal = posixpath.normpath(plain)
    return "it leads out of it" if normal == ".." or normal.startswith("../") else None


def _is_beneath(path: str, workspace: str) -> bool:
    root = posixpath.normpath(workspace)
    normal = posixpath.normpath(path)
    return normal == root or normal.startswith(root.rstrip("/") + "/")


def read(
    text: str, expected: ExpectedReturn | None = None, mode: Mode = "strict", *, schema: Schema | None = None
) -> CheckedReturn[Any]:
    """Parse and check a report against the contract, or against a user's schema instead."""
    parsed = parse(text, mode) if schema is None else parse(text, mode, keys=schema.keys)
    if isinstance(parsed, ContractProblem):
        return CheckedReturn(return_=None, problems=(parsed,))
    checked = check(parsed.value, expected, mode) if schema is None else check_schema(parsed.value, schema)
    return (
        structs.replace(checked, corrections=(*parsed.corrections, *checked.corrections))
        if parsed.corrections
        else checked
    )
