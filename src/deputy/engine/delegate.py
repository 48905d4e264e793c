"""The whole flow of one delegation: request → guard → spawn → run → journal → validate → return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, json, structs

from deputy.core.errors import ContextChanged, Error, StepFailed
from deputy.core.events import Admitted, MessageAdded, StepLost
from deputy.core.fallback import INLINE, NATIVE
from deputy.core.outcome import Artifact, Blocked, Completed, Failed, Partial, Rejected, how_to_answer, shortened
from deputy.core.progress import Kind, Progress
from deputy.core.request import delegation_context
from deputy.core.task import DELEGATE, RUN_TOOL, WRITING_TOOLS
from deputy.engine.agent_context import open_agent
from deputy.engine.attempt import AttemptInput, attempt, open_model, record_attempt
from deputy.engine.changed_files import changed_files
from deputy.engine.fallback import AttemptResult, DelegationResult, FallbackRunner
from deputy.engine.history import remembered, user_message, words_of
from deputy.engine.loop import Report, append_user_message, continue_history
from deputy.engine.ports import Folder
from deputy.engine.prompts import prompt
from deputy.engine.subtask_prompt import BriefingView, subtask_prompt
from deputy.engine.validate import InvalidReturn, ValidReturn, instruction, output_schema
from deputy.engine.worktree import close_worktree, open_worktree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deputy.core.events import Requested
    from deputy.core.fallback import Candidate
    from deputy.core.outcome import Outcome
    from deputy.core.request import Grant, TaskContext
    from deputy.core.subtask.context_passing import Briefing
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.history import History
    from deputy.engine.ports import FlowTool, RunContext
    from deputy.engine.services import Services


async def delegate(run: RunContext, start: Requested, services: Services) -> Outcome:
    """Carry out one delegation, from its request to its one outcome."""
    # A label names files and stands in every event, as the journal has it.
    label = services.redactor.redact(start.label)
    if label != start.label:
        start = structs.replace(start, label=label)
    with services.tracking(run):
        grant = await _admitted(run, start, services)
        if isinstance(grant, Rejected):
            return grant
        taken = await open_worktree(run, start, grant, services)
        if isinstance(taken, Rejected):
            return taken
        if services.is_news(run):
            place = {"index": start.options.index, "total": start.options.total}
            services.watch(_progress("started", run, label, parent=start.parent or "", **place))
        runner = FallbackRunner(run, start, services)
        scratchpad = services.files.scratchpad(label, run.run)
        first = await record_attempt(run, await runner.first(), 0, scratchpad, services)
        agent = await _open_agent(run, start, grant, taken.root, first, services)
        try:
            work = await _begin(run, start, agent, scratchpad, taken.prompt, services)
        except StepFailed as failed:
            return await close_worktree(run, label, taken, _not_begun(run, failed.error), services)

        async def gone(candidate: Candidate, number: int) -> AttemptResult:
            return await attempt(
                work, candidate if number == 0 else await record_attempt(run, candidate, number, scratchpad, services)
            )

        result = await runner.run(first, gone)
        is_limited = result.arrived.verdict.report.kind == "limited"
        changed = await changed_files(run, work.history, agent, start.options.folder) if is_limited else None
        outcome = _outcome(run, work.history, result, changed)
        if start.options.role is not None:
            outcome = structs.replace(outcome, warnings=(*start.options.role.warnings, *outcome.warnings))
        return await close_worktree(run, label, taken, outcome, services)


def _not_begun(run: RunContext, error: Error) -> Rejected:
    lineage = run.state.lineage
    if lineage is None:
        raise TypeError("a run that was never born does not begin")
    return Rejected(lineage=lineage, summary=shortened(f"Not started: {error.message}"), errors=(error,))


async def _admitted(run: RunContext, start: Requested, services: Services) -> Grant | Rejected:
    """What the guard allows it, decided once: a run that goes on was admitted before."""
    request, lineage = start.request, run.state.lineage
    # Only an admission puts a run's own signature on its lineage.
    if lineage is not None and len(lineage.signatures) > len(request.caller.signatures):
        services.restore(request)
        return request.wanted.granted(request.caller_grant)
    await services.count_nested(request.caller.root_id)
    decision = services.admit(request, run.now())
    if isinstance(decision, Rejected):
        # A refusal is how it ends, which is written once, where every ending is.
        return decision
    await run.record("admission", Admitted(lineage=decision.lineage, grant=decision.grant))
    return decision.grant


async def _open_agent(
    run: RunContext, start: Requested, grant: Grant, root: str, first: Candidate, services: Services
) -> AgentContext:
    return await open_agent(
        run,
        services,
        label=start.label,
        model=first.model,
        opened=open_model(first, services),
        routing=start.options.routing,
        grant=grant,
        flow_tools=tuple(tool for tool in services.flow_tools if _is_offered(tool, run, grant, services)),
        output_tokens=start.options.max_output_tokens,
        output=output_schema(start.options),
        root=root,
        parent=start.parent,
        without_asking=_without_asking(start, grant, root),
    )


def _without_asking(start: Requested, grant: Grant, root: str) -> frozenset[str]:
    """The tools that need no approval for each call: the task's approval named them, or they write in a worktree."""
    in_worktree = WRITING_TOOLS - {RUN_TOOL} if root and not grant.work_folder else frozenset[str]()
    return frozenset(start.options.without_asking) | in_worktree


def _is_offered(tool: FlowTool, run: RunContext, grant: Grant, services: Services) -> bool:
    """Whether it has a tool of the flow: handing work on is for those who may still have somebody below them."""
    lineage = run.state.lineage
    is_lowest = lineage is None or lineage.depth >= services.policy.max_depth
    return not tool.is_granted or (tool.name in grant.tools and not (tool.name == DELEGATE and is_lowest))


async def _begin(
    run: RunContext, start: Requested, agent: AgentContext, scratchpad: str, place: str, services: Services
) -> AttemptInput:
    """The work as it stands when it begins or goes on."""
    role = start.options.role

    def system(text: str, continuation: str = "") -> str:
        own = "" if role is None else role.prompt
        standing = _delegation_context(run, start.request.task_context)
        return _joined(services.base_prompt, own, text, place, continuation, standing)

    continuation = "" if agent.subtasks is None else prompt("continuation")
    history = remembered(system(_system_prompt(agent, scratchpad), continuation), run.history, agent.overhead())
    task = _joined(start.request.prompt, instruction(run, start.options))
    if not await continue_history(run, history):
        if start.options.subtask is not None:
            await _add_subtask_prompt(
                run, history, agent, start.options.subtask, instruction(run, start.options), services
            )
        elif start.options.context:
            approved = start.options.context_digests
            # What was approved is what the caller sees, also where the task has a worktree of its own.
            folder = services.files.open(agent.grant, start.options.root) if approved else agent.folder
            view = _TaskView(folder=folder, task=task, approved=approved or None)
            event = await run.step("task", _with_files, TaskArgs(paths=start.options.context), view=view)
            if isinstance(event, StepLost):
                raise TypeError("reading files may be repeated and is never lost")
            history.append_user_message(words_of(event), event.warnings)
            for warning in event.warnings:
                agent.emit(Progress(event="warning", label=agent.label, content=warning))
        else:
            await append_user_message(run, history, "task", task)
    return AttemptInput(
        run=run,
        start=start,
        history=history,
        agent=agent,
        system=system(prompt("program")),
        task=task,
        services=services,
    )


async def _add_subtask_prompt(
    run: RunContext, history: History, agent: AgentContext, briefing: Briefing, form: str, services: Services
) -> None:
    """Tell a subtask its task, with the context that it is given."""
    if services.subtasks is None:
        raise TypeError("a subtask is only spawned where there are subtasks")
    view = BriefingView(
        folder=agent.folder,
        ranker=services.subtasks.ranker,
        briefing=briefing,
        form=form,
        random_string=agent.random_string,
    )
    event = await run.step("task", subtask_prompt, TaskArgs(paths=briefing.file_paths), view=view)
    if isinstance(event, StepLost):
        raise TypeError("gathering context may be repeated and is never lost")
    history.append_user_message(words_of(event), event.warnings, event.passed)
    for warning in event.warnings:
        agent.emit(Progress(event="warning", label=agent.label, content=warning))


class TaskArgs(Struct, frozen=True, kw_only=True):
    """The files that stand before a task."""

    paths: tuple[str, ...]


class _TaskView(Struct, frozen=True, kw_only=True):
    folder: Folder
    task: str
    approved: dict[str, str] | None = None


async def _with_files(args: TaskArgs, view: _TaskView) -> MessageAdded:
    files = await view.folder.before_prompt(args.paths, view.approved)
    if files.changed:
        raise ContextChanged(files.changed)
    return user_message(_joined(files.text, view.task), files.warnings)


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _delegation_context(run: RunContext, task: TaskContext | None) -> str:
    """Where it stands, which it may need to tell others."""
    lineage = run.state.lineage
    if lineage is None:
        return ""
    context = delegation_context(lineage, run.state.seconds, task)
    return prompt("delegation_context").format(context=json.encode(context).decode())


def _system_prompt(agent: AgentContext, scratchpad: str) -> str:
    offered = (*agent.tools.definitions(), *agent.flow_tools.values())
    can_write = any(not tool.traits.reads_only for tool in agent.tools.definitions())
    return prompt("subagent").format(
        tools=", ".join(tool.name for tool in offered) or "none",
        powers="" if can_write else prompt("read_only"),
        scratchpad=scratchpad,
    )


# --- how it ended -----------------------------------------------------------------------------------------------------


def _outcome(run: RunContext, history: History, result: DelegationResult, changed: tuple[str, ...] | None) -> Outcome:
    outcome = _ended(run, history, result.arrived.verdict, result, changed)
    if not isinstance(outcome, Failed) or not result.reasons:
        return outcome
    return structs.replace(outcome, errors=(*outcome.errors, *result.reasons))


def _ended(
    run: RunContext,
    history: History,
    verdict: ValidReturn | InvalidReturn,
    result: DelegationResult,
    changed: tuple[str, ...] | None,
) -> Outcome:
    found = partial_fields(run, history, result.arrived.model, result.backend)
    found["fallbacks"] = result.fallbacks
    found["is_isolated"] = result.backend != INLINE
    if isinstance(verdict, ValidReturn):
        found["warnings"] += verdict.liberties
    if changed is not None:
        found["artifacts"] = _files(changed)
    if isinstance(verdict, InvalidReturn):
        text = verdict.report.text
        return Failed(**found, report=text, summary=shortened(verdict.error.message), errors=(verdict.error,))
    if verdict.returned is not None:
        return _as_returned(found, verdict)
    return as_reported(found, verdict.report, run.run)


def partial_fields(run: RunContext, history: History, model: str, backend: str = NATIVE) -> dict[str, Any]:
    """What an outcome of any kind has from the work so far."""
    state = run.state
    return {
        "lineage": state.lineage,
        "notes": tuple(history.notes),
        "artifacts": _files(history.changed),
        "warnings": history.warnings,
        "usage": history.usage,
        "model": model,
        "backend": backend,
        "duration_seconds": round(max(0.0, run.now() - state.began_clock), 3),
        "passed": history.passed,
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


def _as_returned(found: dict[str, Any], verdict: ValidReturn) -> Outcome:
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
    remedy = f"Use what was found, or {again}"
    return structs.replace(error, recoverable=True, recommendation=remedy)


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
