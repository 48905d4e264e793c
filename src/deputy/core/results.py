"""The result of a call: Markdown for a model or a person, JSON for a program."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import UNSET, Struct, UnsetType, to_builtins

from deputy.core.errors import Error, remedy, unrecoverable
from deputy.core.foreign_text import kept_apart, plain
from deputy.core.outcome import (
    NO_USAGE,
    OUTCOME_WORDS,
    Artifact,
    Blocked,
    Completed,
    Fallback,
    Outcome,
    OutcomeWord,
    Partial,
    Usage,
    used_text,
)
from deputy.core.task import cleaned_label

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN_FILES = 20
_TITLE = "Subagents:"
_EXHAUSTED = ("timeout", "budget", "context_exhausted")

ResultMark = Literal["ok", "partial", "error", "blocked", "cancelled", "rejected"]
_MARKS: dict[OutcomeWord, ResultMark] = {"completed": "ok", "failed": "error"}


class Result(Struct, frozen=True, kw_only=True):
    """The outcome of one task of a call."""

    label: str
    outcome: Outcome

    def _repr_markdown_(self) -> str:
        """The result in a notebook."""
        return outcomes_markdown([self.outcome])


class Outcomes(tuple[Outcome, ...]):
    """The outcomes of a call, in the order of its tasks."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        """The outcomes in a notebook."""
        return outcomes_markdown(self)


def outcomes_markdown(outcomes: Sequence[Outcome]) -> str:
    """Outcomes as Markdown for a person, without secrets of a known shape; a single one has no heading of the call."""
    from deputy.core.redaction import Redactor

    results = [Result(label=outcome.label, outcome=outcome) for outcome in outcomes]
    shown = results_markdown(results) if len(results) != 1 else plain(_section(results[0].label, results[0])) + "\n"
    return Redactor().redact(shown)


def overall(outcomes: Sequence[Outcome]) -> OutcomeWord:
    """The status of a call: completed if all tasks are, partial if a result is usable, else the worst."""
    statuses = {outcome.status for outcome in outcomes}
    if statuses == {"completed"}:
        return "completed"
    if statuses & {"completed", "partial"}:
        return "partial"
    worst: tuple[OutcomeWord, ...] = ("blocked", "failed", "cancelled", "rejected")
    return next(status for status in worst if status in statuses)


class ResultJson(Struct, frozen=True, kw_only=True):
    """The result of one task of a call."""

    label: str
    status: ResultMark
    outcome: OutcomeWord
    session_id: str | None
    """None for a task that never started."""
    usage: Usage
    report: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    """Of a return in JSON; so are its next steps."""
    next_steps: str | UnsetType = UNSET
    scratchpad: str | UnsetType = UNSET
    error: Error | UnsetType = UNSET
    question: str | UnsetType = UNSET
    artifacts: tuple[Artifact, ...] | UnsetType = UNSET
    branch: str | UnsetType = UNSET
    backend: str | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    isolated: bool | UnsetType = UNSET
    fallbacks: tuple[Fallback, ...] | UnsetType = UNSET
    warnings: tuple[str, ...] | UnsetType = UNSET
    remedy: str | UnsetType = UNSET


class ResultsJson(Struct, frozen=True, kw_only=True):
    """The results of a call in the order of its tasks, with the number of each outcome."""

    completed: int
    partial: int
    failed: int
    blocked: int
    cancelled: int
    rejected: int
    total: int
    usage: Usage
    """The usage of all tasks together."""
    results: tuple[ResultJson, ...]


def results_json(results: Sequence[Result]) -> ResultsJson:
    """The results for JSON output."""
    return ResultsJson(
        **_counts(results),
        total=len(results),
        usage=total_usage(results),
        results=tuple(map(_result_json, results)),
    )


def results_dict(results: Sequence[Result]) -> dict[str, Any]:
    """The results as plain data."""
    return to_builtins(results_json(results))


def results_markdown(results: Sequence[Result]) -> str:
    """The results as Markdown; a partial result does not count as completed."""
    names = unique_labels([result.label for result in results])
    sections = map(_section, names, results)
    total = [f"**Total usage**: {used_text(total_usage(results))}"] if len(results) > 1 else []
    return plain("\n\n".join([f"## {_TITLE} {_counted(results)} of {len(results)}", *total, *sections])) + "\n"


def total_usage(results: Sequence[Result]) -> Usage:
    """The usage of all tasks together."""
    return reduce(add, (result.outcome.usage for result in results), NO_USAGE)


def unique_labels(labels: Sequence[str]) -> list[str]:
    """The labels on one line each; a repeated label gets a number."""
    seen: Counter[str] = Counter()
    names: list[str] = []
    for label in map(cleaned_label, labels):
        seen[label] += 1
        names.append(label if seen[label] == 1 else f"{label} #{seen[label]}")
    return names


def _result_json(result: Result) -> ResultJson:
    outcome = result.outcome
    has_detour = bool(outcome.fallbacks) or not outcome.is_isolated
    is_return = outcome.report.lstrip("`json \n").startswith("{") and '"summary"' in outcome.report
    return ResultJson(
        label=result.label,
        status=_MARKS.get(outcome.status, cast("ResultMark", outcome.status)),
        outcome=outcome.status,
        session_id=outcome.session_id or None,
        usage=outcome.usage,
        report=outcome.report or UNSET,
        summary=outcome.summary if is_return else UNSET,
        next_steps=(outcome.next_steps or UNSET) if is_return else UNSET,
        scratchpad=UNSET if isinstance(outcome, Completed) else "\n\n".join(outcome.notes) or UNSET,
        error=(unrecoverable(outcome.errors) or outcome.errors[0]) if outcome.errors else UNSET,
        question=outcome.question if isinstance(outcome, Blocked) else UNSET,
        artifacts=outcome.artifacts or UNSET,
        branch=outcome.branch or UNSET,
        backend=outcome.backend if has_detour else UNSET,
        model=outcome.model or UNSET,
        isolated=outcome.is_isolated if has_detour else UNSET,
        fallbacks=outcome.fallbacks if has_detour else UNSET,
        warnings=outcome.warnings or UNSET,
        remedy=remedy(outcome.errors) if outcome.errors else UNSET,
    )


def _counts(results: Sequence[Result]) -> dict[OutcomeWord, int]:
    statuses = [result.outcome.status for result in results]
    return {word: statuses.count(word) for word in OUTCOME_WORDS}


def _counted(results: Sequence[Result]) -> str:
    return ", ".join(f"{count} {word}" for word, count in _counts(results).items() if count) or "none"


def _section(name: str, result: Result) -> str:
    outcome = result.outcome
    parts = [
        f"### [{name}] {_title(outcome)}",
        *((_apart(f"**Model**: {outcome.model}"),) if outcome.model else ()),
        f"**Usage**: {used_text(outcome.usage)}",
    ]
    parts.extend(_apart(f"**Instead of {one.left}**: {one.taken}. {one.reason}") for one in outcome.fallbacks)
    if not outcome.is_isolated:
        parts.append("**Done inline**: no subagent was available, so the task was not isolated.")
    parts.extend(_apart(f"**Warning:** {warning}") for warning in outcome.warnings)
    if isinstance(outcome, Blocked) and outcome.question:
        parts.append(_apart(f"**Question:** {outcome.question}"))
        parts.extend(filter(None, (_apart(remedy(outcome.errors)),)))
    elif not isinstance(outcome, Completed):
        advice = remedy(outcome.errors)
        parts.extend(_apart(error.message) for error in outcome.errors if error.message not in advice)
        parts.extend(filter(None, (_apart(advice),)))
    if outcome.report and outcome.report != getattr(outcome, "question", ""):
        parts.append(_apart(outcome.report))
    if outcome.branch or outcome.artifacts:
        parts.append(_changes(outcome))
    if outcome.notes and not isinstance(outcome, Completed):
        is_spent = isinstance(outcome, Partial) and any(error.type in _EXHAUSTED for error in outcome.errors)
        parts.append("**Findings before exhaustion:**" if is_spent else "**Findings so far:**")
        parts.extend(map(_apart, outcome.notes))
    return "\n\n".join(parts)


def _apart(text: str) -> str:
    """Text of a subagent, which cannot fake one of our headings or hide the text after it."""
    return kept_apart(text, ("[", _TITLE))


def _changes(outcome: Outcome) -> str:
    files = [artifact.path for artifact in outcome.artifacts]
    more = f" and {len(files) - _SHOWN_FILES} more" if len(files) > _SHOWN_FILES else ""
    listed = f"{', '.join(files[:_SHOWN_FILES]) or 'nothing'}{more}"
    return _apart(f"**Branch**: {outcome.branch} (changed: {listed})" if outcome.branch else f"**Artifacts**: {listed}")


_LONGEST_REASON = 80


def _title(outcome: Outcome) -> str:
    if isinstance(outcome, Completed):
        return "✓"
    # A subagent may name any type, and this is a heading.
    reason = " ".join(outcome.errors[0].type.replace("_", " ").split())[:_LONGEST_REASON] if outcome.errors else ""
    if isinstance(outcome, Partial):
        return f"⚠ partial ({reason})"
    return f"✗ {outcome.status}" + (f" ({reason})" if reason else "")
