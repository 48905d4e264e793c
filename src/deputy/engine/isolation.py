"""Whoever changes something works in a place of its own: taken before the work, given back after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, json, structs

from deputy.core.approval import ApprovalRequest, Part
from deputy.core.errors import Error
from deputy.core.events import Lost, StepEnded
from deputy.core.outcome import Rejected, shortened
from deputy.core.role import WRITING_TOOLS
from deputy.engine.approval import ask_person
from deputy.engine.ports import NoWorkplace, WorkDone, Workplace, Workplaces
from deputy.engine.prompts import prompt
from deputy.engine.workplace import GIVEN_BACK, TAKEN, Opened, left_as_it_is, with_work

if TYPE_CHECKING:
    from deputy.core.events import Requested
    from deputy.core.outcome import Outcome
    from deputy.core.request import Grant
    from deputy.engine.ports import RunContext
    from deputy.engine.workshop import Workshop


KEEP_SECONDS = 1.5
"""How long a run that was stopped is kept from its end by what it leaves."""
_APPROVAL = "worktree:approval"


class Taken(Struct, frozen=True, kw_only=True):
    """Where a run works: in a place of its own, or where its caller does."""

    root: str = ""
    place: Workplace | None = None
    warnings: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """What the agent is told about it."""
        if self.place is None:
            return ""
        behind = prompt("behind") if self.place.is_behind else ""
        return prompt("workplace").format(branch=self.place.branch, base=self.place.base[:12], behind=behind).strip()


class PlaceArgs(Struct, frozen=True, kw_only=True):
    """Whose place, and what it is made from."""

    run: str
    label: str
    root: str


class CloseArgs(Struct, frozen=True, kw_only=True):
    """The place, and what its work is called and consists of."""

    place: Workplace
    title: str
    named: tuple[str, ...] = ()
    """The files that the outcome speaks of."""


async def take_place(run: RunContext, birth: Requested, grant: Grant, workshop: Workshop) -> Taken | Rejected:
    """The place that a run works in; refused where it would need one, and nobody lets it do without."""
    terms, workplaces = birth.terms, workshop.workplaces
    if workplaces is None or terms.isolation == "none" or not grant.tools & WRITING_TOOLS:
        return Taken(root=terms.root)
    args = PlaceArgs(run=run.run, label=birth.label, root=terms.root)
    opened = json.decode(_result(await run.step(TAKEN, _open, args, view=workplaces)), type=Opened)
    if opened.place is not None:
        return Taken(root=opened.place.root, place=opened.place)
    if not await _may_do_without(run, grant, opened.reason, workshop):
        return _refused(run, opened.reason)
    return Taken(root=terms.root, warnings=(f"It worked in place, as {opened.reason}.",))


async def give_back(run: RunContext, label: str, taken: Taken, outcome: Outcome, workshop: Workshop) -> Outcome:
    """The outcome with what was done in the place of a run's own: the files that differ, and the branch."""
    if taken.place is None or workshop.workplaces is None:
        return structs.replace(outcome, warnings=(*taken.warnings, *outcome.warnings)) if taken.warnings else outcome
    args = CloseArgs(place=taken.place, title=_title(label, outcome), named=_named(outcome))
    ended = await run.step(GIVEN_BACK, _close, args, view=workshop.workplaces)
    return with_work(outcome, json.decode(_result(ended), type=WorkDone))


async def keep(workplaces: Workplaces, place: Workplace, label: str, outcome: Outcome) -> Outcome:
    """The outcome of a run that was stopped before it could give its place back, with what it had done there."""
    try:
        async with asyncio.timeout(KEEP_SECONDS):
            done = await workplaces.close(place, _title(label, outcome), _named(outcome))
    except TimeoutError:
        done = left_as_it_is(place)
    return with_work(outcome, done)


def _title(label: str, outcome: Outcome) -> str:
    return f"{label}: {outcome.summary}"


def _named(outcome: Outcome) -> tuple[str, ...]:
    return tuple(artifact.path for artifact in outcome.artifacts)


async def _open(args: PlaceArgs, workplaces: Workplaces) -> StepEnded:
    match await workplaces.open(args.run, args.label, args.root):
        case Workplace() as place:
            opened = Opened(place=place)
        case NoWorkplace(reason=reason):
            opened = Opened(reason=reason)
    return StepEnded(step=TAKEN, result=Raw(json.encode(opened)))


async def _close(args: CloseArgs, workplaces: Workplaces) -> StepEnded:
    done = await workplaces.close(args.place, args.title, args.named)
    return StepEnded(step=GIVEN_BACK, result=Raw(json.encode(done)))


def _result(ended: StepEnded | Lost) -> Raw:
    if isinstance(ended, Lost) or ended.result is UNSET:
        raise TypeError("this may be repeated, is never lost and has a result")
    return ended.result


async def _may_do_without(run: RunContext, grant: Grant, reason: str, workshop: Workshop) -> bool:
    if workshop.approval != "ask" and run.asked(_APPROVAL) is None:
        return workshop.approval == "granted"

    async def make() -> ApprovalRequest:
        parts = (
            Part(name="no worktree", text=reason),
            Part(name="works", text="in place: changes your files"),
            Part(name="tools", text=", ".join(sorted(grant.tools))),
        )
        return ApprovalRequest(tool="isolation", title="Work in place, without a worktree", parts=parts, risk="high")

    verdict = await ask_person(
        run,
        _APPROVAL,
        make,
        begun="started",
        tell=lambda progress: workshop.tell(run, progress),
        approval=workshop.approval,
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
