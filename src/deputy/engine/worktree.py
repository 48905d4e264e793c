"""Whoever changes something works in a place of its own: taken before the work, given back after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, json, structs

from deputy.core.approval import ApprovalPart, ApprovalRequest
from deputy.core.errors import Error
from deputy.core.events import StepEnded, StepLost
from deputy.core.outcome import Rejected, shortened
from deputy.core.task import WRITING_TOOLS
from deputy.engine.approvals import ask_person
from deputy.engine.ports import NoWorktree, Worktree, WorktreeChanges, Worktrees
from deputy.engine.prompts import prompt
from deputy.engine.worktree_records import (
    WORKTREE_CLOSED,
    WORKTREE_OPENED,
    WorktreeOpened,
    unchanged_worktree,
    with_work,
)

if TYPE_CHECKING:
    from deputy.core.events import Requested
    from deputy.core.outcome import Outcome
    from deputy.core.request import Grant
    from deputy.engine.ports import RunContext
    from deputy.engine.services import Services


KEEP_SECONDS = 1.5
"""How long a run that was stopped is kept from its end by what it leaves."""
_APPROVAL = "worktree:approval"


class TakenWorktree(Struct, frozen=True, kw_only=True):
    """Where a run works: in a place of its own, or where its caller does."""

    root: str = ""
    place: Worktree | None = None
    warnings: tuple[str, ...] = ()

    @property
    def prompt(self) -> str:
        """What the agent is told about it."""
        if self.place is None:
            return ""
        behind = prompt("uncommitted_changes") if self.place.is_behind else ""
        return prompt("worktree").format(branch=self.place.branch, base=self.place.base[:12], behind=behind).strip()


class OpenWorktreeArgs(Struct, frozen=True, kw_only=True):
    """Whose place, and what it is made from."""

    run: str
    label: str
    root: str


class CloseWorktreeArgs(Struct, frozen=True, kw_only=True):
    """The place, and what its work is called and consists of."""

    place: Worktree
    title: str
    named: tuple[str, ...] = ()
    """The files that the outcome speaks of."""


async def open_worktree(
    run: RunContext, start: Requested, grant: Grant, services: Services
) -> TakenWorktree | Rejected:
    """The place that a run works in; refused where it would need one, and nobody lets it do without."""
    options, worktrees = start.options, services.worktrees
    if worktrees is None or options.isolation == "none" or not grant.tools & WRITING_TOOLS:
        return TakenWorktree(root=options.root)
    args = OpenWorktreeArgs(run=run.run, label=start.label, root=options.root)
    opened = json.decode(_result(await run.step(WORKTREE_OPENED, _open, args, view=worktrees)), type=WorktreeOpened)
    if opened.place is not None:
        return TakenWorktree(root=opened.place.root, place=opened.place)
    if not await _may_do_without(run, grant, opened.reason, services):
        return _refused(run, opened.reason)
    return TakenWorktree(root=options.root, warnings=(f"It worked in place, as {opened.reason}.",))


async def close_worktree(
    run: RunContext, label: str, taken: TakenWorktree, outcome: Outcome, services: Services
) -> Outcome:
    """The outcome with what was done in the place of a run's own: the files that differ, and the branch."""
    if taken.place is None or services.worktrees is None:
        return structs.replace(outcome, warnings=(*taken.warnings, *outcome.warnings)) if taken.warnings else outcome
    args = CloseWorktreeArgs(place=taken.place, title=_title(label, outcome), named=_named(outcome))
    ended = await run.step(WORKTREE_CLOSED, _close, args, view=services.worktrees)
    return with_work(outcome, json.decode(_result(ended), type=WorktreeChanges))


async def keep_worktree(worktrees: Worktrees, place: Worktree, label: str, outcome: Outcome) -> Outcome:
    """The outcome of a run that was stopped before it could give its place back, with what it had done there."""
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


async def _open(args: OpenWorktreeArgs, worktrees: Worktrees) -> StepEnded:
    match await worktrees.open(args.run, args.label, args.root):
        case Worktree() as place:
            opened = WorktreeOpened(place=place)
        case NoWorktree(reason=reason):
            opened = WorktreeOpened(reason=reason)
    return StepEnded(step=WORKTREE_OPENED, result=Raw(json.encode(opened)))


async def _close(args: CloseWorktreeArgs, worktrees: Worktrees) -> StepEnded:
    done = await worktrees.close(args.place, args.title, args.named)
    return StepEnded(step=WORKTREE_CLOSED, result=Raw(json.encode(done)))


def _result(ended: StepEnded | StepLost) -> Raw:
    if isinstance(ended, StepLost) or ended.result is UNSET:
        raise TypeError("this may be repeated, is never lost and has a result")
    return ended.result


async def _may_do_without(run: RunContext, grant: Grant, reason: str, services: Services) -> bool:
    if services.approval != "ask" and run.recorded_question(_APPROVAL) is None:
        return services.approval == "granted"

    async def make() -> ApprovalRequest:
        parts = (
            ApprovalPart(name="no worktree", text=reason),
            ApprovalPart(name="works", text="in place: changes your files"),
            ApprovalPart(name="tools", text=", ".join(sorted(grant.tools))),
        )
        return ApprovalRequest(tool="isolation", title="Work in place, without a worktree", parts=parts, risk="high")

    verdict = await ask_person(
        run,
        _APPROVAL,
        make,
        begun="started",
        tell=lambda progress: services.emit(run, progress),
        approval=services.approval,
    )
    return verdict.is_yes


def _refused(run: RunContext, reason: str) -> Rejected:
    lineage = run.state.lineage
    if lineage is None:
        raise TypeError("a run that was never born has no place")
    error = Error(
        type="tool_unavailable",
        code="NO_WORKTREE",
        message=f"It may change files and has no worktree of its own, as {reason}.",
        recoverable=True,
        recommendation="Make it a git repository with a commit, or allow it to work in place with isolation none.",
    )
    return Rejected(lineage=lineage, summary=shortened(f"Not started: {error.message}"), errors=(error,))
