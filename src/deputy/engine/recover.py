"""Find orphaned, overdue and undelivered runs. Pure: it changes nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from deputy.core.outcome import Usage
from deputy.core.state import State
from deputy.engine.ports.queries import LeaseHolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class RunStatus(Struct, frozen=True, kw_only=True):
    """A run's state, and whether a process holds it."""

    state: State
    is_orphaned: bool
    """No process holds it: its process ended, died or stopped renewing the lease."""
    holder: LeaseHolder | None = None
    """The process that holds it, or the queue whose workers will take it."""
    used: Usage | None = None
    """The usage of the run and its descendants, if it was summed."""

    @property
    def usage(self) -> Usage:
        """The usage as an outcome shows it: with descendants if known."""
        return self.state.usage if self.used is None else self.used


ShownStatus: TypeAlias = Literal["interrupted", "queued"] | str


def shown_status(run_status: RunStatus) -> ShownStatus:
    """The status for display: a live run without a process is interrupted, one that waits for a worker is queued."""
    status = run_status.state.status
    if run_status.holder is not None and run_status.holder.is_queued:
        return "queued"
    if not run_status.is_orphaned or not run_status.state.is_live or status == "waiting":
        return "running" if status == "requested" else status
    return "interrupted"


class OrphanedRun(Struct, frozen=True, kw_only=True, tag="orphaned"):
    """A run without a process; it can continue from its last record."""

    state: State
    repeats: tuple[str, ...]
    """Interrupted steps that are repeated."""
    unknown: tuple[str, ...]
    """Interrupted steps that must not be repeated: their effects are unknown."""


class Overdue(Struct, frozen=True, kw_only=True, tag="overdue"):
    """A run past its deadline; any process may end it."""

    state: State
    seconds: float


class Undelivered(Struct, frozen=True, kw_only=True, tag="undelivered"):
    """A result that has not reached its caller yet."""

    state: State


RecoveryFinding: TypeAlias = OrphanedRun | Overdue | Undelivered

GRACE_SECONDS = 5.0
"""The time that a run past its deadline gets to end by itself."""


def find(statuses: Iterable[RunStatus], now: float) -> list[RecoveryFinding]:
    """All findings, in the order the runs began."""
    ordered = sorted(statuses, key=lambda run_status: (run_status.state.requested_at, run_status.state.run))
    excused = _excused([run_status.state for run_status in ordered], now)
    found = (judge(run_status, now, is_excused=run_status.state.run in excused) for run_status in ordered)
    return [finding for finding in found if finding is not None]


def overdue(statuses: Iterable[RunStatus], now: float) -> list[State]:
    """The overdue runs, descendants first, because their results belong to their callers."""
    late = [finding.state for finding in find(statuses, now) if isinstance(finding, Overdue)]
    return sorted(late, key=_depth, reverse=True)


def unanswered(statuses: Iterable[RunStatus], now: float) -> list[State]:
    """The runs whose question was not answered in time."""
    states = (run_status.state for run_status in statuses)
    return [state for state in states if state.waits and state.answer_by is not None and state.answer_by <= now]


def waits_until(state: State) -> float | None:
    """Until when a run waits for a person; None when it does not wait for one."""
    if state.status != "waiting":
        return None
    return math.inf if state.answer_by is None else state.answer_by


def has_time_below(below: Iterable[State], now: float) -> bool:
    """Whether a descendant still has time; a wait for a person extends a deadline."""
    return any(_has_time(state, now) for state in below)


def _excused(states: Sequence[State], now: float) -> set[str]:
    """The ancestors of runs that still have time."""
    parents = {state.run: state.parent for state in states}
    excused: set[str] = set()
    for state in states:
        above = state.parent if _has_time(state, now) else None
        while above is not None and above not in excused:
            excused.add(above)
            above = parents.get(above)
    return excused


def _has_time(state: State, now: float) -> bool:
    deadline = None if state.lineage is None else state.lineage.deadline
    return state.is_live and (state.status == "waiting" or (deadline is not None and now < deadline))


def _depth(state: State) -> int:
    return 0 if state.lineage is None else state.lineage.depth


def judge(run_status: RunStatus, now: float, *, is_excused: bool = False) -> RecoveryFinding | None:
    """The finding of one run; an excused run waits for a descendant that still has time."""
    state = run_status.state
    if not state.is_live:
        return None if state.is_delivered or state.status == "unborn" else Undelivered(state=state)
    late = seconds_late(state, now)
    if late > (0.0 if run_status.is_orphaned else GRACE_SECONDS) and not is_excused:
        return Overdue(state=state, seconds=late)
    if not run_status.is_orphaned or state.status == "waiting":
        return None
    steps = state.under_way.items()
    return OrphanedRun(
        state=state,
        repeats=tuple(key for key, step in steps if step.is_repeatable),
        unknown=tuple(key for key, step in steps if not step.is_repeatable),
    )


def seconds_late(state: State, now: float) -> float:
    """Seconds past the deadline; 0 while the run waits for a person."""
    deadline = None if state.lineage is None else state.lineage.deadline
    if deadline is None or state.status == "waiting":
        return 0.0
    return max(0.0, now - deadline)
