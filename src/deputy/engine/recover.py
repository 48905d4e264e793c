"""What a dead process left behind, and what may be done about it. Says; does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from deputy.core.outcome import Usage
from deputy.core.state import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class RunStatus(Struct, frozen=True, kw_only=True):
    """Where a run stands, and whether anybody is at work on it."""

    state: State
    is_orphaned: bool
    """Nobody is: its process ended, died, or has been silent for too long."""
    used: Usage | None = None
    """What it and all runs below it have used, where that was summed."""

    @property
    def usage(self) -> Usage:
        """What the work took, as an outcome tells it: with all that is below, where that is known."""
        return self.state.usage if self.used is None else self.used


ShownStatus: TypeAlias = Literal["interrupted"] | str


def shown_status(run_status: RunStatus) -> ShownStatus:
    """A run's status as people see it: one that should be at work, and has nobody, is interrupted."""
    status = run_status.state.status
    if not run_status.is_orphaned or not run_status.state.is_live or status == "waiting":
        return "running" if status == "requested" else status
    return "interrupted"


class OrphanedRun(Struct, frozen=True, kw_only=True, tag="orphaned"):
    """A run that nobody is at work on: it can go on from its last record."""

    state: State
    repeats: tuple[str, ...]
    """Steps under way that are simply taken again."""
    unknown: tuple[str, ...]
    """Steps under way that must not be: nobody knows what they did."""


class Overdue(Struct, frozen=True, kw_only=True, tag="overdue"):
    """A run past its deadline, whoever started it: it must end."""

    state: State
    seconds: float


class Undelivered(Struct, frozen=True, kw_only=True, tag="undelivered"):
    """A result that has not reached whoever asked: it is kept until it does."""

    state: State


RecoveryFinding: TypeAlias = OrphanedRun | Overdue | Undelivered

GRACE_SECONDS = 5.0
"""What a run past its deadline gets to end by itself."""


def find(statuses: Iterable[RunStatus], now: float) -> list[RecoveryFinding]:
    """What should be seen to, in the order the runs began."""
    ordered = sorted(statuses, key=lambda run_status: (run_status.state.requested_at, run_status.state.run))
    excused = _excused([run_status.state for run_status in ordered], now)
    found = (judge(run_status, now, is_excused=run_status.state.run in excused) for run_status in ordered)
    return [finding for finding in found if finding is not None]


def overdue(statuses: Iterable[RunStatus], now: float) -> list[State]:
    """The runs past their deadline, those below before those above: what they came to is theirs to tell."""
    late = [finding.state for finding in find(statuses, now) if isinstance(finding, Overdue)]
    return sorted(late, key=_depth, reverse=True)


def unanswered(statuses: Iterable[RunStatus], now: float) -> list[State]:
    """The runs that asked a person who did not answer in time."""
    states = (run_status.state for run_status in statuses)
    return [state for state in states if state.waits and state.answer_by is not None and state.answer_by <= now]


def has_time_below(below: Iterable[State], now: float) -> bool:
    """Whether somebody below still has time: a clock that stood still for a person goes on for longer than ours."""
    return any(_has_time(state, now) for state in below)


def _excused(states: Sequence[State], now: float) -> set[str]:
    """The runs that have somebody below them who still has time."""
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
    """What is wrong with one run, if anything is; one that is excused waits for somebody who still has time."""
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
    """How long a run is past its deadline; one that waits for a person has a clock that stands still."""
    deadline = None if state.lineage is None else state.lineage.deadline
    if deadline is None or state.status == "waiting":
        return 0.0
    return max(0.0, now - deadline)
