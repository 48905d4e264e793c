"""Whether a value holds to the return contract: every problem at once, in a fixed order and wording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast

from msgspec import UNSET

from deputy.core.contract.form import (
    STATUSES,
    SUMMARY_LONG,
    SUMMARY_MAX,
    Artifact,
    Checked,
    Expected,
    Metadata,
    Mode,
    Problem,
    Return,
)
from deputy.core.contract.leniency import read_leniently
from deputy.core.contract.listing import Listing
from deputy.core.contract.paths import why_outside
from deputy.core.contract.quoting import is_unicode, joined, kind_of, quoted
from deputy.core.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RULE = "contract.check"

Object = dict[str, Any]


def check(value: object, expected: Expected | None = None, mode: Mode = "strict") -> Checked[Return]:
    """The return that a value is, or all the problems that keep it from being one."""
    expected = expected or Expected()
    value, liberties = read_leniently(value, expected) if mode == "lenient" else (value, ())
    found = _Findings()
    if _is_object(value):
        for step in _STEPS:
            step(value, expected, found)
    else:
        found.problem(
            f"Return is not a JSON object: found {kind_of(value)}", "Return one object with the fields asked for."
        )
    problems = found.problems.all()
    return Checked(
        return_=None if problems or not _is_object(value) else _made(value),
        problems=problems,
        warnings=found.warnings.all(),
        liberties=liberties,
    )


class _Findings:
    """What the steps of a check report to."""

    __slots__ = ("problems", "warnings")

    def __init__(self) -> None:
        self.problems: Listing[Problem] = Listing(lambda more: Problem(rule=RULE, message=more))
        self.warnings: Listing[str] = Listing(str)

    def problem(self, message: str, advice: str) -> None:
        self.problems.add(Problem(rule=RULE, message=message, advice=advice))

    def warn(self, message: str) -> None:
        self.warnings.add(message)


class _Kind(NamedTuple):
    """What a field may hold, and how that is said."""

    says: str
    holds: Callable[[Any], bool]


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and is_unicode(value)


def _is_object(value: object) -> TypeGuard[Object]:
    return isinstance(value, dict)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def _is_path(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, cast(list[object], value)))


_TEXT = _Kind("a string", _is_text)
_FLAG = _Kind("true or false", _is_flag)
_LIST = _Kind("a list", _is_list)
_OBJECT = _Kind("an object", _is_object)

_FIELDS = frozenset({"status", "summary", "artifacts", "metadata", "errors", "next_steps"})
_REQUIRED = ("status", "summary", "artifacts", "metadata")
_METADATA_REQUIRED = ("session_id", "agent_type")
_METADATA = {
    "session_id": _TEXT,
    "agent_type": _TEXT,
    "delegation_depth": _Kind("a whole number, 0 or more", _is_count),
    "delegation_path": _Kind("a list of names", _is_path),
    "duration_seconds": _Kind("a number of seconds, 0 or more", _is_duration),
}
_ARTIFACT_REQUIRED = ("type", "path")
_ARTIFACT = {"type": _TEXT, "path": _TEXT, "summary": _TEXT}
_ERROR_REQUIRED = ("type", "message", "recoverable", "recommendation")
_ERROR = {"type": _TEXT, "message": _TEXT, "code": _TEXT, "recoverable": _FLAG, "recommendation": _TEXT}


def _check_required(value: Object, expected: Expected, found: _Findings) -> None:
    _require(value, _REQUIRED, "", found)
    if _is_object(metadata := value.get("metadata")):
        _require(metadata, _METADATA_REQUIRED, "metadata.", found)


def _check_status(value: Object, expected: Expected, found: _Findings) -> None:
    if "status" in value and value["status"] not in STATUSES:
        found.problem(f"Invalid status: {quoted(value['status'])}", f"Use one of {', '.join(STATUSES)}.")


def _check_summary(value: Object, expected: Expected, found: _Findings) -> None:
    summary = _typed(value, "summary", _TEXT, "", found)
    if summary is None:
        return
    if not summary.strip():
        found.problem("Summary cannot be empty", "Say in 2 to 5 sentences what was done and found.")
    elif len(summary) > SUMMARY_MAX:
        found.problem(f"Summary too long (max {SUMMARY_MAX} chars)", f"Shorten it: it has {len(summary):,} characters.")
    elif len(summary) > SUMMARY_LONG:
        found.warn(f"Summary is long: {len(summary)} of at most {SUMMARY_MAX} characters")


def _check_lineage(value: Object, expected: Expected, found: _Findings) -> None:
    metadata = _typed(value, "metadata", _OBJECT, "", found)
    if metadata is None:
        return
    told = {name: _typed(metadata, name, kind, "metadata.", found) for name, kind in _METADATA.items()}
    for name in _METADATA_REQUIRED:
        _check_filled(told[name], f"metadata.{name}", found)
    _compare("Session ID", told["session_id"], expected.session_id, found)
    _compare("Agent type", told["agent_type"], expected.agent_type, found)
    _compare("Delegation depth", told["delegation_depth"], expected.depth, found)
    _compare_paths(told["delegation_path"], expected.path, found)
    seconds, elapsed = told["duration_seconds"], expected.elapsed_seconds
    if seconds is not None and elapsed is not None and seconds > elapsed + 1:
        found.warn(f"Duration is said to be {quoted(seconds)} s; the delegation began {elapsed:.0f} s ago")
    _warn_unknown(metadata, _METADATA, "metadata.", found)


def _compare(what: str, told: object, known: object, found: _Findings) -> None:
    if told is not None and known is not None and told != known:
        found.problem(
            f"{what} mismatch: {quoted(told)} != {quoted(known)}", f"Return {quoted(known)}, as it was given."
        )


def _compare_paths(told: list[str] | None, known: tuple[str, ...], found: _Findings) -> None:
    if told is None or not known or tuple(told) == known:
        return
    if tuple(told) == known[:-1]:
        found.warn(f"Delegation path ends with the caller: {quoted(known[-1])} is missing at its end")
    else:
        found.problem(
            f"Delegation path mismatch: {joined(told) or 'nothing'} != {joined(known)}",
            "Return the path as it was given.",
        )


def _check_errors(value: Object, expected: Expected, found: _Findings) -> None:
    status = value.get("status")
    count = 0
    for at, error in _records(value, "errors", found):
        count += 1
        _check_record(error, _ERROR, _ERROR_REQUIRED, at, found)
    if status == "completed":
        if count:
            found.warn(
                f"Status is completed, yet {count} errors are listed"
                if count > 1
                else "Status is completed, yet an error is listed"
            )
    elif status in STATUSES:
        advice = "Say what went wrong: type, message, recoverable and recommendation."
        if "errors" not in value:
            found.problem("Missing required field: errors", advice)
        elif value["errors"] == []:
            found.problem(f"Errors cannot be empty when the status is {status}", advice)


def _check_artifacts(value: Object, expected: Expected, found: _Findings) -> None:
    for at, artifact in _records(value, "artifacts", found):
        _check_record(artifact, _ARTIFACT, _ARTIFACT_REQUIRED, at, found)
        path = artifact.get("path")
        if _is_text(path) and path.strip() and (reason := why_outside(path, expected.workspace)):
            found.problem(
                f"Artifact path outside the workspace: {quoted(path)} ({reason})",
                "Name the file by its path from the workspace's root.",
            )


def _check_rest(value: Object, expected: Expected, found: _Findings) -> None:
    _typed(value, "next_steps", _TEXT, "", found)
    _warn_unknown(value, _FIELDS, "", found)


_STEPS = (
    _check_required,
    _check_status,
    _check_summary,
    _check_lineage,
    _check_errors,
    _check_artifacts,
    _check_rest,
)


def _records(value: Object, name: str, found: _Findings) -> Iterator[tuple[str, Object]]:
    """The objects of a list, each with where it stands; what is not one is reported."""
    for index, item in enumerate(_typed(value, name, _LIST, "", found) or ()):
        at = f"{name}[{index}]"
        if _is_object(item):
            yield f"{at}.", item
        else:
            _report_type(at, _OBJECT, item, found)


def _check_record(
    record: Object, kinds: dict[str, _Kind], required: tuple[str, ...], at: str, found: _Findings
) -> None:
    _require(record, required, at, found)
    for name, kind in kinds.items():
        told = _typed(record, name, kind, at, found)
        if name in required:
            _check_filled(told, f"{at}{name}", found)
    _warn_unknown(record, kinds, at, found)


def _require(record: Object, names: tuple[str, ...], at: str, found: _Findings) -> None:
    for name in names:
        if name not in record:
            found.problem(f"Missing required field: {at}{name}", f"Add {at}{name}.")


def _typed(record: Object, name: str, kind: _Kind, at: str, found: _Findings) -> Any:
    """What a field holds when it is of the right kind; None, and a problem, when it is not; None when it is absent."""
    if name not in record:
        return None
    told = record[name]
    if kind.holds(told):
        return told
    _report_type(f"{at}{name}", kind, told, found)
    return None


def _report_type(at: str, kind: _Kind, told: object, found: _Findings) -> None:
    advice = (
        f"Write {kind.says}." if told is not None else f"Write {kind.says}, or leave the field out if it is optional."
    )
    found.problem(f"Wrong type for {at}: expected {kind.says}, found {_told(told)}", advice)


def _told(value: object) -> str:
    """A value of the wrong kind: the kind, and a number as it is, since it may be of the right one and out of range."""
    return f"{kind_of(value)} ({quoted(value)})" if kind_of(value) == "a number" else kind_of(value)


def _check_filled(told: object, at: str, found: _Findings) -> None:
    if isinstance(told, str) and not told.strip():
        found.problem(f"Empty field: {at}", f"Fill in {at}.")


def _warn_unknown(record: Object, known: dict[str, _Kind] | frozenset[str], at: str, found: _Findings) -> None:
    for name in record:
        if name not in known:
            found.warn(f"Unknown field ignored: {at}{quoted(name)}")


def _made(value: Object) -> Return:
    metadata = value["metadata"]
    path = metadata.get("delegation_path", UNSET)
    return Return(
        status=value["status"],
        summary=value["summary"],
        artifacts=tuple(
            Artifact(type=told["type"], path=told["path"], summary=told.get("summary", UNSET))
            for told in value["artifacts"]
        ),
        metadata=Metadata(
            session_id=metadata["session_id"],
            agent_type=metadata["agent_type"],
            delegation_depth=metadata.get("delegation_depth", UNSET),
            delegation_path=UNSET if path is UNSET else tuple(path),
            duration_seconds=metadata.get("duration_seconds", UNSET),
        ),
        errors=tuple(
            Error(
                type=told["type"],
                message=told["message"],
                code=told.get("code", UNSET),
                recoverable=told["recoverable"],
                recommendation=told["recommendation"],
            )
            for told in value.get("errors", ())
        ),
        next_steps=value.get("next_steps", UNSET),
    )
