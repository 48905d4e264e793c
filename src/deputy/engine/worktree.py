"""Open a git worktree for a writing run before its work, and close it afterwards."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import Raw, Struct, json, structs

from deputy.core.approval import ApprovalPart, ApprovalRequest
from deputy.core.errors import Error, WorkspaceError
from deputy.core.events import StepEnded
from deputy.core.outcome import Artifact, Failed, Rejected, shortened
from deputy.core.task import WRITING_TOOLS
from deputy.engine.approvals import ask_person
from deputy.engine.ports import NoWorktree, Worktree, WorktreeChanges, Worktrees
from deputy.engine.prompts import prompt

if TYPE_CHECKING:
    from deputy.core.events import Requested
    from deputy.core.outcome import Outcome
    from deputy.core.request import Grant
    from deputy.engine.ports import RunContext
    from deputy.engine.services import Services

    AnyOutcome = TypeVar("AnyOutcome", bound=Outcome)

KEEP_SECONDS = 1.5
"""The maximum time to commit the worktree of a stopped run."""
_APPROVAL = "worktree:approval"
WORKTREE_OPENED, WORKTREE_CLOSED = "worktree", "worktree:done"
"""The step keys."""
_ON_A_BRANCH = "It worked on a branch, not in place: the worker has a copy of your folder."


class WorktreeOpened(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of opening: a worktree, or the reason why there is none."""

    place: Worktree | None = None
    reason: str = ""


class TakenWorktree(Struct, frozen=True, kw_only=True):
    """A run's worktree, or its caller's directory."""

    root: str = ""
    place: Worktree | None = None
    warnings: tuple[str, ...] = ()

    @property
    def prompt(self) -> str:
        """The system prompt about the worktree."""
        if self.place is None:
            return ""
        behind = prompt("uncommitted_changes") if self.place.is_behind else ""
        return prompt("worktree").format(branch=self.place.branch, base=self.place.base[:12], behind=behind).strip()


async def open_worktree(
    run: RunContext, start: Requested, grant: Grant, services: Services
) -> TakenWorktree | Rejected:
    """The directory that a run works in; rejected if it needs a worktree and may not work in place."""
    options, worktrees = start.options, services.worktrees
    is_in_place = options.isolation == "none" and (worktrees is None or not worktrees.must_isolate)
    if worktrees is None or is_in_place or not grant.tools & WRITING_TOOLS:
        return TakenWorktree(root=options.root)
    where = (options.root, options.base)
    opened = await run.value(WORKTREE_OPENED, WorktreeOpened, _open, worktrees, run.run, start.label, *where)
    if opened.place is not None:
        place = await worktrees.restore(run.run, opened.place)
        warnings = (_ON_A_BRANCH,) if options.isolation == "none" else ()
        return TakenWorktree(root=place.root, place=place, warnings=warnings)
    if not await _may_do_without(run, grant, opened.reason, services):
        return _refused(run, opened.reason)
    return TakenWorktree(root=options.root, warnings=(f"It worked in place, without a worktree: {opened.reason}.",))


async def close_worktree(
    run: RunContext, label: str, taken: TakenWorktree, outcome: Outcome, services: Services
) -> Outcome:
    """Close the worktree and add its changed files and branch to the outcome."""
    if taken.place is None or services.worktrees is None:
        return structs.replace(outcome, warnings=(*taken.warnings, *outcome.warnings)) if taken.warnings else outcome
    close = services.worktrees.close
    title, named = _title(label, outcome), _named(outcome)
    if taken.warnings:
        outcome = structs.replace(outcome, warnings=(*taken.warnings, *outcome.warnings))
    return with_work(outcome, await run.value(WORKTREE_CLOSED, WorktreeChanges, close, taken.place, title, named))


async def keep_worktree(worktrees: Worktrees, place: Worktree, label: str, outcome: Outcome) -> Outcome:
    """Close the worktree of a stopped run and add its changes to the outcome."""
    try:
        async with asyncio.timeout(KEEP_SECONDS):
            done = await worktrees.close(place, _title(label, outcome), _named(outcome))
    except TimeoutError:
        done = unchanged_worktree(place)
    return with_work(outcome, done)


def _title(label: str, outcome: Outcome) -> str:
    return f"{label}: {outcome.summary}"


def _named(outcome: Outcome) -> tuple[str, ...]:
    return tuple(artifact.path for artifact in outcome.artifacts)


async def _open(worktrees: Worktrees, run: str, label: str, root: str, base: str) -> WorktreeOpened:
    match await worktrees.open(run, label, root, base):
        case Worktree() as place:
            return WorktreeOpened(place=place)
        case NoWorktree(reason=reason):
            return WorktreeOpened(reason=reason)


async def _may_do_without(run: RunContext, grant: Grant, reason: str, services: Services) -> bool:
    if services.approval != "ask" and run.recorded_question(_APPROVAL) is None:
        return services.approval == "granted"
    parts = (
        ApprovalPart(name="no worktree", text=reason),
        ApprovalPart(name="works", text="in place: changes your files"),
        ApprovalPart(name="tools", text=", ".join(sorted(grant.tools))),
    )
    request = ApprovalRequest(tool="isolation", title="Work in place, without a worktree", parts=parts, risk="high")
    verdict = await ask_person(
        run,
        _APPROVAL,
        request,
        begun="started",
        emit=partial(services.emit, run),
        approval=services.approval,
        folder=services.files.open(grant),
    )
    return verdict.is_yes


def _refused(run: RunContext, reason: str) -> Rejected:
    error = Error(
        type="tool_unavailable",
        code="NO_WORKTREE",
        message=f"The task may change files, and no worktree can be made: {reason}.",
        recoverable=True,
        recommendation="Make the directory a git repository with a commit, or allow work in place with isolation none.",
    )
    return Rejected(lineage=run.lineage, summary=shortened(f"Not started: {error.message}"), errors=(error,))


def workspace_missing(run: RunContext, reason: WorkspaceError) -> Failed:
    """The outcome of a run whose files this machine cannot have; it can be resumed."""
    error = Error(
        type="execution",
        code="WORKSPACE_MISSING",
        message=reason.what,
        recoverable=True,
        recommendation=f"{reason.remedy} Then: deputy resume {run.lineage.root_id}",
    )
    return Failed(lineage=run.lineage, summary=shortened(error.message), errors=(error,))


# --- worktrees in the records -----------------------------------------------------------------------------------------


def place_after(event: StepEnded, before: Worktree | WorktreeChanges | None) -> Worktree | WorktreeChanges | None:
    """The worktree after one more step, or its changes once it is closed."""
    match event:
        case StepEnded(step=step, result=Raw() as result) if step == WORKTREE_OPENED:
            return json.decode(result, type=WorktreeOpened).place
        case StepEnded(step=step, result=Raw() as result) if step == WORKTREE_CLOSED:
            return json.decode(result, type=WorktreeChanges)
        case _:
            return before


def unchanged_worktree(place: Worktree) -> WorktreeChanges:
    """The changes of a worktree that was not closed."""
    return WorktreeChanges(
        branch=place.branch, warning=f"Its changes are in {place.folder}, not committed to its branch."
    )


def with_work(outcome: AnyOutcome, done: WorktreeChanges) -> AnyOutcome:
    """The outcome with the changed files and the branch."""
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
