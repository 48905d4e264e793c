"""The whole flow of one delegation: request → guard → spawn → run → journal → validate → return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, json, structs

from deputy.core.errors import ContextChanged, Error, StepFailed
from deputy.core.events import Admitted, Lost, Said
from deputy.core.ladder import INLINE, NATIVE
from deputy.core.outcome import Artifact, Blocked, Completed, Failed, Partial, Rejected, how_to_answer, shortened
from deputy.core.progress import Kind, Progress
from deputy.core.request import delegation_context
from deputy.core.role import DELEGATE, RUN_TOOL, WRITING_TOOLS
from deputy.engine.briefing import BriefingView, tell_subtask
from deputy.engine.carrying import Work, begin, go, opened
from deputy.engine.desk import open_desk
from deputy.engine.isolation import give_back, take_place
from deputy.engine.ladder import Arrived, Carried, Ladder
from deputy.engine.leftovers import left_on_disk
from deputy.engine.loop import Report, go_on, say
from deputy.engine.ports import Folder
from deputy.engine.prompts import prompt
from deputy.engine.talk import remembered, said, words_of
from deputy.engine.validate import Accepted, NotAccepted, instruction, output_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deputy.core.events import Requested
    from deputy.core.ladder import Rung
    from deputy.core.outcome import Outcome
    from deputy.core.request import Grant, TaskContext
    from deputy.core.subtask.passing import Briefing
    from deputy.engine.desk import Desk
    from deputy.engine.ports import FlowTool, RunContext
    from deputy.engine.talk import Talk
    from deputy.engine.workshop import Workshop


async def delegate(run: RunContext, birth: Requested, workshop: Workshop) -> Outcome:
    """Carry out one delegation, from its request to its one outcome."""
    # A label names files and stands in every event, as the journal has it.
    label = workshop.redactor.redact(birth.label)
    if label != birth.label:
        birth = structs.replace(birth, label=label)
    with workshop.minding(run):
        grant = await _admitted(run, birth, workshop)
        if isinstance(grant, Rejected):
            return grant
        taken = await take_place(run, birth, grant, workshop)
        if isinstance(taken, Rejected):
            return taken
        if workshop.is_news(run):
            place = {"index": birth.terms.index, "total": birth.terms.total}
            workshop.watch(_progress("started", run, label, parent=birth.parent or "", **place))
        ladder = Ladder(run, birth, workshop)
        scratchpad = workshop.files.scratchpad(label, run.run)
        first = await begin(run, await ladder.first(), 0, scratchpad, workshop)
        desk = await _desk(run, birth, grant, taken.root, first, workshop)
        try:
            work = await _begin(run, birth, desk, scratchpad, taken.told, workshop)
        except StepFailed as failed:
            return await give_back(run, label, taken, _not_begun(run, failed.error), workshop)

        async def gone(rung: Rung, number: int) -> Arrived:
            return await go(work, rung if number == 0 else await begin(run, rung, number, scratchpad, workshop))

        carried = await ladder.carry(first, gone)
        is_limited = carried.arrived.verdict.report.kind == "limited"
        left = await left_on_disk(run, work.talk, desk, birth.terms.folder) if is_limited else None
        outcome = _outcome(run, work.talk, carried, left)
        if birth.terms.role is not None:
            outcome = structs.replace(outcome, warnings=(*birth.terms.role.warnings, *outcome.warnings))
        return await give_back(run, label, taken, outcome, workshop)


def _not_begun(run: RunContext, error: Error) -> Rejected:
    lineage = run.state.lineage
    if lineage is None:
        raise TypeError("a run that was never born does not begin")
    return Rejected(lineage=lineage, summary=shortened(f"Not started: {error.message}"), errors=(error,))


async def _admitted(run: RunContext, birth: Requested, workshop: Workshop) -> Grant | Rejected:
    """What the guard allows it, decided once: a run that goes on was admitted before."""
    request, lineage = birth.request, run.state.lineage
    # Only an admission puts a run's own signature on its lineage.
    if lineage is not None and len(lineage.signatures) > len(request.caller.signatures):
        workshop.readmit(request)
        return request.wanted.granted(request.caller_grant)
    await workshop.count_nested(request.caller.root_id)
    decision = workshop.admit(request, run.now())
    if isinstance(decision, Rejected):
        # A refusal is how it ends, which is written once, where every ending is.
        return decision
    await run.record("admission", Admitted(lineage=decision.lineage, grant=decision.grant))
    return decision.grant


async def _desk(run: RunContext, birth: Requested, grant: Grant, root: str, first: Rung, workshop: Workshop) -> Desk:
    return await open_desk(
        run,
        workshop,
        label=birth.label,
        model=first.model,
        opened=opened(first, workshop),
        routing=birth.terms.routing,
        grant=grant,
        flow_tools=tuple(tool for tool in workshop.flow_tools if _is_offered(tool, run, grant, workshop)),
        output_tokens=birth.terms.max_output_tokens,
        output=output_schema(birth.terms),
        root=root,
        parent=birth.parent,
        without_asking=_without_asking(birth, grant, root),
    )


def _without_asking(birth: Requested, grant: Grant, root: str) -> frozenset[str]:
    """The tools that need no approval for each call: the task's approval named them, or they write in a worktree."""
    in_worktree = WRITING_TOOLS - {RUN_TOOL} if root and not grant.work_folder else frozenset[str]()
    return frozenset(birth.terms.without_asking) | in_worktree


def _is_offered(tool: FlowTool, run: RunContext, grant: Grant, workshop: Workshop) -> bool:
    """Whether it has a tool of the flow: handing work on is for those who may still have somebody below them."""
    lineage = run.state.lineage
    is_lowest = lineage is None or lineage.depth >= workshop.policy.max_depth
    return not tool.is_granted or (tool.name in grant.tools and not (tool.name == DELEGATE and is_lowest))


async def _begin(
    run: RunContext, birth: Requested, desk: Desk, scratchpad: str, place: str, workshop: Workshop
) -> Work:
    """The work as it stands when it begins or goes on."""
    role = birth.terms.role

    def system(told: str, continuation: str = "") -> str:
        own = "" if role is None else role.prompt
        standing = _standing(run, birth.request.task_context)
        return _joined(workshop.base_prompt, own, told, place, continuation, standing)

    continuation = "" if desk.subtasks is None else prompt("continuation")
    talk = remembered(system(_told(desk, scratchpad), continuation), run.past, desk.overhead())
    task = _joined(birth.request.prompt, instruction(run, birth.terms))
    if not await go_on(run, talk):
        if birth.terms.subtask is not None:
            await _say_briefing(run, talk, desk, birth.terms.subtask, instruction(run, birth.terms), workshop)
        elif birth.terms.context:
            approved = birth.terms.context_digests
            # What was approved is what the caller sees, also where the task has a worktree of its own.
            folder = workshop.files.open(desk.grant, birth.terms.root) if approved else desk.folder
            view = _TaskView(folder=folder, task=task, approved=approved or None)
            event = await run.step("task", _with_files, TaskArgs(paths=birth.terms.context), view=view)
            if isinstance(event, Lost):
                raise TypeError("reading files may be repeated and is never lost")
            talk.say(words_of(event), event.warnings)
            for warning in event.warnings:
                desk.emit(Progress(event="warning", label=desk.label, content=warning))
        else:
            await say(run, talk, "task", task)
    return Work(
        run=run,
        birth=birth,
        talk=talk,
        desk=desk,
        system=system(prompt("program")),
        task=task,
        workshop=workshop,
    )


async def _say_briefing(
    run: RunContext, talk: Talk, desk: Desk, briefing: Briefing, form: str, workshop: Workshop
) -> None:
    """Tell a subtask its task, with the context that it is given."""
    if workshop.subtasks is None:
        raise TypeError("a subtask is only spawned where there are subtasks")
    view = BriefingView(
        folder=desk.folder, ranker=workshop.subtasks.ranker, briefing=briefing, form=form, draw=desk.draw
    )
    event = await run.step("task", tell_subtask, TaskArgs(paths=briefing.file_paths), view=view)
    if isinstance(event, Lost):
        raise TypeError("gathering context may be repeated and is never lost")
    talk.say(words_of(event), event.warnings, event.passed)
    for warning in event.warnings:
        desk.emit(Progress(event="warning", label=desk.label, content=warning))


class TaskArgs(Struct, frozen=True, kw_only=True):
    """The files that stand before a task."""

    paths: tuple[str, ...]


class _TaskView(Struct, frozen=True, kw_only=True):
    folder: Folder
    task: str
    approved: dict[str, str] | None = None


async def _with_files(args: TaskArgs, view: _TaskView) -> Said:
    files = await view.folder.before_prompt(args.paths, view.approved)
    if files.changed:
        raise ContextChanged(files.changed)
    return said(_joined(files.text, view.task), files.warnings)


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _standing(run: RunContext, task: TaskContext | None) -> str:
    """Where it stands, which it may need to tell others."""
    lineage = run.state.lineage
    if lineage is None:
        return ""
    context = delegation_context(lineage, run.state.seconds, task)
    return prompt("standing").format(context=json.encode(context).decode())


def _told(desk: Desk, scratchpad: str) -> str:
    offered = (*desk.tools.definitions(), *desk.flow_tools.values())
    can_write = any(not tool.traits.reads_only for tool in desk.tools.definitions())
    return prompt("subagent").format(
        tools=", ".join(tool.name for tool in offered) or "none",
        powers="" if can_write else prompt("read_only"),
        scratchpad=scratchpad,
    )


# --- how it ended -----------------------------------------------------------------------------------------------------


def _outcome(run: RunContext, talk: Talk, carried: Carried, left: tuple[str, ...] | None) -> Outcome:
    outcome = _ended(run, talk, carried.arrived.verdict, carried, left)
    if not isinstance(outcome, Failed) or not carried.reasons:
        return outcome
    return structs.replace(outcome, errors=(*outcome.errors, *carried.reasons))


def _ended(
    run: RunContext,
    talk: Talk,
    verdict: Accepted | NotAccepted,
    carried: Carried,
    left: tuple[str, ...] | None,
) -> Outcome:
    found = so_far(run, talk, carried.arrived.model, carried.backend)
    found["fallbacks"] = carried.fallbacks
    found["is_isolated"] = carried.backend != INLINE
    if isinstance(verdict, Accepted):
        found["warnings"] += verdict.liberties
    if left is not None:
        found["artifacts"] = _files(left)
    if isinstance(verdict, NotAccepted):
        text = verdict.report.text
        return Failed(**found, report=text, summary=shortened(verdict.error.message), errors=(verdict.error,))
    if verdict.returned is not None:
        return _as_returned(found, verdict)
    return as_reported(found, verdict.report, run.run)


def so_far(run: RunContext, talk: Talk, model: str, backend: str = NATIVE) -> dict[str, Any]:
    """What an outcome of any kind has from the work so far."""
    state = run.state
    return {
        "lineage": state.lineage,
        "notes": tuple(talk.notes),
        "artifacts": _files(talk.changed),
        "warnings": talk.warnings,
        "usage": talk.usage,
        "model": model,
        "backend": backend,
        "duration_seconds": round(max(0.0, run.now() - state.began_clock), 3),
        "passed": talk.passed,
    }


def _files(paths: Iterable[str]) -> tuple[Artifact, ...]:
    return tuple(Artifact(type="file", path=path) for path in paths)


def as_reported(found: dict[str, Any], report: Report, run: str) -> Outcome:
    """The outcome of a conversation that came to rest like this."""
    text = report.text
    match report.kind:
        case "answered":
            return Completed(**found, report=text, summary=_first_line(text))
        case "asked":
            return Blocked(
                **found,
                report=text,
                summary=shortened(f"It asks: {_first_line(text)}"),
                question=text,
                errors=(_question(text, run),),
                next_steps=f'deputy resume {run} --answer "…"',
            )
        case "limited":
            error = _resumable(report.error, run)
            summary = shortened(f"Partial: {error.message}")
            return Partial(**found, report=text, summary=summary, errors=(error,), next_steps=f"deputy resume {run}")
        case "failed":
            error = report.error or _resumable(None, run)
            return Failed(**found, report=text, summary=shortened(error.message), errors=(error,))


def _as_returned(found: dict[str, Any], verdict: Accepted) -> Outcome:
    returned = verdict.returned
    if returned is None:
        raise TypeError("only a return is an outcome of its own")
    fields: dict[str, Any] = {
        **found,
        "report": verdict.report.text,
        "summary": returned.summary,
        "artifacts": tuple(returned.artifacts),
        "errors": returned.errors,
        "next_steps": returned.next_steps or "",
    }
    match returned.status:
        case "completed":
            return Completed(**fields)
        case "partial":
            return Partial(**fields)
        case "failed":
            return Failed(**fields)
        case "blocked":
            return Blocked(**fields, question=returned.summary)


def _first_line(text: str) -> str:
    line = next((line.strip(" #*") for line in text.splitlines() if line.strip(" #*")), "")
    return shortened(line) or "It reported nothing."


def _resumable(error: Error | None, run: str) -> Error:
    if error is None:
        error = Error(type="execution", message="It ended without a reason.", recoverable=True, recommendation="")
    # A budget that is spent stays spent: whoever went on would be stopped again at once.
    again = "ask again with a larger budget" if error.type == "budget" else f"go on with: deputy resume {run}"
    advice = f"Use what was found, or {again}"
    return structs.replace(error, recoverable=True, recommendation=advice)


def _question(text: str, run: str) -> Error:
    return Error(
        type="question",
        code="AWAITING_HUMAN_INPUT",
        message=shortened(text or "It waits for an answer.", 300),
        recoverable=True,
        recommendation=how_to_answer(run),
    )


def _progress(event: Kind, run: RunContext, label: str, **fields: Any) -> Progress:
    return Progress(event=event, label=label, session_id=run.run, **fields)
