"""The place of a run's own in its records: what became of it, and what an outcome has from that."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec import Raw, Struct, json, structs

from deputy.core.events import StepEnded
from deputy.core.outcome import Artifact
from deputy.engine.ports import Worktree, WorktreeChanges

if TYPE_CHECKING:
    from deputy.core.outcome import Outcome

    Told = TypeVar("Told", bound=Outcome)

WORKTREE_OPENED, WORKTREE_CLOSED = "worktree", "worktree:done"
"""The steps that open and close it."""


class WorktreeOpened(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of the first: a place, or why there is none."""

    place: Worktree | None = None
    reason: str = ""


def place_after(event: StepEnded, before: Worktree | WorktreeChanges | None) -> Worktree | WorktreeChanges | None:
    """The place that a run has after one more step, or what it came to when it was given back."""
    match event:
        case StepEnded(step=step, result=Raw() as result) if step == WORKTREE_OPENED:
            return json.decode(result, type=WorktreeOpened).place
        case StepEnded(step=step, result=Raw() as result) if step == WORKTREE_CLOSED:
            return json.decode(result, type=WorktreeChanges)
        case _:
            return before


def unchanged_worktree(place: Worktree) -> WorktreeChanges:
    """What can be said of a place that nobody has looked into since it was worked in."""
    return WorktreeChanges(
        branch=place.branch, warning=f"What it changed is in {place.folder} and not committed to its branch."
    )


def with_work(outcome: Told, done: WorktreeChanges) -> Told:
    """The outcome with what was done in the place: the files that differ, and the branch that has them."""
    known = {artifact.path for artifact in outcome.artifacts}
    return structs.replace(
        outcome,
        branch=done.branch,
        artifacts=(
            *outcome.artifacts,
            *(Artifact(type="file", path=path) for path in done.changed if path not in known),
        ),
        warnings=(*outcome.warnings, done.warning) if done.warning else outcome.warnings,
    )
