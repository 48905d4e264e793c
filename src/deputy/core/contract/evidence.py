"""Whether the files that a return speaks of bear it out, given facts about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.contract.bounded_list import BoundedList
from deputy.core.contract.quote import quoted
from deputy.core.contract.return_types import ContractProblem, Return

if TYPE_CHECKING:
    from collections.abc import Iterable

RULE = "contract.evidence"
UNCHANGED = "has not changed since before the delegation began"
KINDS_WITH_ARTIFACTS = frozenset({"research", "plan", "implement"})
# File systems stamp files with a clock that ticks in steps and may lag behind the one that stamped the beginning.
CLOCK_STEP_SECONDS = 0.02
KEPT_FOLDER = ".deputy"
KEPT_FILES = ("tasks.json", "tasks.lock")
"""What there is of the tasks of a project, with the drafts of it."""


class FileFact(Struct, frozen=True, kw_only=True):
    """What was seen on disk where an artifact is said to be."""

    path: str
    """As the artifact spells it."""
    exists: bool
    size: int = 0
    """In bytes; of a directory, 1 where any of its files has content."""
    modified_at: float | None = None
    """In seconds of the same clock as the beginning of the delegation; of a directory, of the newest of its files."""
    is_inside: bool = True
    """Whether it lies in the workspace once links are followed."""
    is_file: bool = True
    """Whether it is a regular file."""
    is_touched: bool = True
    """Whether it differs from what the work began with; of a directory, whether any of its files does."""
    is_kept: bool = False
    """Whether git or Deputy keeps it for itself, as `is_kept` says."""


def is_kept(parts: tuple[str, ...]) -> bool:
    """Whether what lies here from the root is no work: the root itself, or what git or Deputy keeps for itself."""
    if not parts or ".git" in parts or parts[-1] == KEPT_FOLDER:
        return True
    return parts[-2:-1] == (KEPT_FOLDER,) and parts[-1].removeprefix(".").startswith(KEPT_FILES)


def weigh_evidence(
    return_: Return, facts: Iterable[FileFact] | None, *, kind: str | None = None, started_at: float | None = None
) -> tuple[ContractProblem, ...]:
    """What the files say against a return that claims to be completed.

    Without a fact a file is not there. With None instead of facts nobody has looked: only phantoms are found then.
    """
    if return_.status != "completed":
        return ()
    if not return_.artifacts and kind in KINDS_WITH_ARTIFACTS:
        return (
            ContractProblem(
                rule=RULE,
                message=f"phantom {kind}: completed without any artifact",
                remedy="Write down what was done and name the file, or return partial with an error.",
            ),
        )
    if facts is None:
        return ()
    seen = {fact.path: fact for fact in facts}
    problems: BoundedList[ContractProblem] = BoundedList(lambda more: ContractProblem(rule=RULE, message=more))
    for artifact in return_.artifacts:
        if objection := _objection(seen.get(artifact.path), started_at):
            problems.add(
                ContractProblem(
                    rule=RULE,
                    message=f"Artifact {objection}: {quoted(artifact.path, 200)}",
                    remedy="Write the file now and name it exactly, or leave it out of artifacts.",
                )
            )
    return problems.all()


def _objection(fact: FileFact | None, started_at: float | None) -> str | None:
    if fact is None or not fact.exists:
        return "does not exist"
    if not fact.is_inside:
        return "leads out of the workspace"
    if fact.is_kept:
        return "is no work of the delegation"
    if not fact.size:
        return "is empty"
    if not fact.is_touched:
        return UNCHANGED
    if started_at is not None and fact.modified_at is not None and fact.modified_at < started_at - CLOCK_STEP_SECONDS:
        return UNCHANGED
    return None
