"""Check the artifacts of a return against the files on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.contract.quote import quoted
from deputy.core.contract.return_types import BoundedList, ContractProblem, Return

if TYPE_CHECKING:
    from collections.abc import Iterable

RULE = "contract.evidence"
UNCHANGED = "has not changed since before the delegation began"
KINDS_WITH_ARTIFACTS = frozenset({"research", "plan", "implement"})
# The clock of a file system has coarse steps and may be behind ours.
CLOCK_STEP_SECONDS = 0.02
KEPT_FOLDER = ".deputy"
KEPT_FILES = ("tasks.json", "tasks.lock")
"""The task file of a project, its lock and its temporary files."""


class FileFact(Struct, frozen=True, kw_only=True):
    """What is on disk at the path of an artifact."""

    path: str
    """As the artifact has it."""
    exists: bool
    size: int = 0
    """In bytes; 1 for a directory with at least one file that is not empty."""
    modified_at: float | None = None
    """By the same clock as the start of the delegation; of a directory, the newest of its files."""
    is_inside: bool = True
    """Whether the real path is in the workspace."""
    is_file: bool = True
    """Whether it is a regular file."""
    is_touched: bool = True
    """Whether the content changed since the start; of a directory, the content of any of its files."""
    is_kept: bool = False
    """Whether the path belongs to git or Deputy; see `is_kept`."""


def is_kept(parts: tuple[str, ...]) -> bool:
    """Whether a path, given as parts from the root, is the root itself or belongs to git or Deputy."""
    if not parts or ".git" in parts or parts[-1] == KEPT_FOLDER:
        return True
    return parts[-2:-1] == (KEPT_FOLDER,) and parts[-1].removeprefix(".").startswith(KEPT_FILES)


def weigh_evidence(
    return_: Return, facts: Iterable[FileFact] | None, *, kind: str | None = None, started_at: float | None = None
) -> tuple[ContractProblem, ...]:
    """The artifacts of a completed return that the files on disk contradict.

    An artifact without a fact does not exist. None instead of facts means that the disk was not read; then only a
    return without artifacts is found.
    """
    if return_.status != "completed":
        return ()
    if not return_.artifacts and kind in KINDS_WITH_ARTIFACTS:
        return (
            ContractProblem(
                rule=RULE,
                message=f"phantom {kind}: completed without any artifact",
                remedy="Write the result to a file and list it in artifacts, or return partial with an error.",
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
        return "belongs to git or Deputy"
    if not fact.size:
        return "is empty"
    if not fact.is_touched:
        return UNCHANGED
    if started_at is not None and fact.modified_at is not None and fact.modified_at < started_at - CLOCK_STEP_SECONDS:
        return UNCHANGED
    return None
