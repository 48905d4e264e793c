"""One delegation: request → guard → spawn → run → journal → validate → return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from deputy.core.errors import Error, StepFailed, WorkspaceError, new_error
from deputy.core.events import Admitted
from deputy.core.fallback import INLINE, NATIVE, UNCHOSEN_SCOUT
from deputy.core.outcome import (
    Artifact,
    Blocked,
    Completed,
    Failed,
    Partial,
    Rejected,
    first_sentence,
    how_to_answer,
    shortened,
)
from deputy.core.progress import Progress
from deputy.core.task import RUN_TOOL, WRITING_TOOLS
from deputy.core.workspace_words import names_workspace
from deputy.engine import compact_profile
from deputy.engine.agent_context import open_agent
from deputy.engine.attempt import AttemptInput, open_model, record_attempt
from deputy.engine.changed_files import changed_files
from deputy.engine.fallback import FallbackRunner
from deputy.engine.history import remembered
from deputy.engine.loop import continue_history
from deputy.engine.prompts import prompt
from deputy.engine.task_prompt import append_task, run_data, subagent_prompt, system_prompt, task_text
from deputy.engine.validate import output_schema
from deputy.engine.worktree import close_worktree, open_worktree, workspace_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from deputy.core.contract import Return
    from deputy.core.events import Requested
    from deputy.core.fallback import Candidate
    from deputy.core.limits import BudgetUse
    from deputy.core.outcome import Outcome
    from deputy.core.request import Grant
    from deputy.core.task import Role
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.attempt import AttemptResult
    from deputy.engine.history import History
    from deputy.engine.ports import RunContext
    from deputy.engine.services import Services

    AnyOutcome = TypeVar("AnyOutcome", bound=Outcome)


ADMISSION = "admission"
"""Key of the guard's decision, the first record of a delegation that works."""


async def delegate(run: RunContext, start: Requested, services: Services) -> Outcome:
    """Execute one delegation from its request to its outcome."""
    # The label appears in file names and events, so it must match its redacted form in the journal.
    label = services.redactor.redact(start.label)
    if label != start.label:
        start = structs.replace(start, label=label)
    with services.tracking(run):
        grant = await _admitted(run, start, services)
        if isinstance(grant, Rejected):
            return grant
        try:
            if start.options.root and services.worktrees is not None:
                root = await services.worktrees.locate(start.options.root)
                start = structs.replace(start, options=structs.replace(start.options, root=root))
            taken = await open_worktree(run, start, grant, services)
        except WorkspaceError as error:
            return workspace_missing(run, error)
        if isinstance(taken, Rejected):
            return taken
        if services.is_news(run):
            index, total, parent = start.options.index, start.options.total, start.parent or ""
            started = Progress(
                event="started", label=label, session_id=run.run, parent=parent, index=index, total=total
            )
            services.watch(structs.replace(started, seconds=run.state.worked_before or None))
        fallback = FallbackRunner(run, services, label, start.model, start.options.routing)
        scratchpad = await services.files.begin_scratchpad(label, run.run)
        first = await record_attempt(run, await fallback.first(), 0, scratchpad, services)
        agent = await _open_agent(run, start, grant, taken.root, first, services)
        try:
            work = await _begin(run, start, agent, scratchpad, taken.prompt, services, first.backend)
        except StepFailed as failed:
            summary = shortened(f"Not started: {failed.error.message}")
            refused = Rejected(lineage=run.lineage, summary=summary, errors=(failed.error,))
            return await close_worktree(run, label, taken, refused, services)
        result = await fallback.run(work, first)
        is_limited = result.report.kind == "limited"
        changed = await changed_files(run, work.history, agent, start.options.folder) if is_limited else None
        outcome = outcome_of(run, work.history, result, start.options.role, changed)
        if start.model == UNCHOSEN_SCOUT and isinstance(outcome, Completed):
            outcome = _without_model(outcome)
        return await close_worktree(run, label, taken, outcome, services)


async def _admitted(run: RunContext, start: Requested, services: Services) -> Grant | Rejected:
    """The grant, decided by the guard once; a resumed run was admitted before."""
    request = start.request
    # Only an admission puts a run's own signature on its lineage.
    if len(run.lineage.signatures) > len(request.caller.signatures):
        services.restore(request)
        return request.wanted.granted(request.caller_grant)
    await services.budgets.refresh(request.caller.root_id)
    decision = await services.admit(request, run.now())
    if isinstance(decision, Rejected):
        # Not recorded here: the supervisor records every outcome.
        return decision
    await run.record(ADMISSION, Admitted(lineage=decision.lineage, grant=decision.grant))
    return decision.grant


async def _open_agent(
    run: RunContext, start: Requested, grant: Grant, root: str, first: Candidate, services: Services
) -> AgentContext:
    opened = open_model(first, services)
    window = await services.window(run, first.model, opened)
    is_compact = first.backend == NATIVE and services.is_compact(first.model, window)
    hidden = compact_profile.HIDDEN if is_compact and start.request.wanted.tools is None else frozenset[str]()
    return await open_agent(
        run,
        services,
        label=start.label,
        model=first.model,
        opened=opened,
        window=window,
        routing=start.options.routing,
        grant=grant,
        flow_tools=tuple(
            tool for tool in services.flow_tools if tool.name in grant.tools or not (tool.is_granted or is_compact)
        ),
        is_compact=is_compact,
        task=start.request.prompt,
        must_look=_must_look(start),
        hidden=hidden,
        output_tokens=start.options.max_output_tokens,
        output=output_schema(start.options),
        root=root,
        parent=start.parent,
        without_asking=_without_asking(start, grant, root),
    )


def _must_look(start: Requested) -> bool:
    """Whether only a look at the workspace can answer the task; a return in JSON is checked by its evidence instead."""
    options = start.options
    is_checked = options.return_format == "json" or options.schema is not None or options.subtask is not None
    return not (options.context or is_checked) and names_workspace(start.request.prompt)


def _without_asking(start: Requested, grant: Grant, root: str) -> frozenset[str]:
    """Tools that need no approval per call: approved with the task, or confined to a worktree."""
    in_worktree = WRITING_TOOLS - {RUN_TOOL} if root and not grant.work_folder else frozenset[str]()
    return frozenset(start.options.without_asking) | in_worktree


async def _begin(
    run: RunContext,
    start: Requested,
    agent: AgentContext,
    scratchpad: str,
    place: str,
    services: Services,
    backend: str,
) -> AttemptInput:
    """Build or restore the history and collect the input of the attempts."""
    continuation = "" if agent.subtasks is None else prompt("continuation")
    system = system_prompt(start, services, subagent_prompt(agent), continuation)
    history = remembered(system, run.history, agent.overhead())
    if not await continue_history(run, history, agent):
        data = "" if agent.is_compact else run_data(run, start, scratchpad)
        await append_task(run, start, agent, history, services, backend, place, data)
    return AttemptInput(
        run=run,
        services=services,
        agent=agent,
        history=history,
        prompt=start.request.prompt,
        options=start.options,
        system=system_prompt(start, services, prompt("program")),
        task=task_text(run, start, backend),
    )


# --- the outcome ------------------------------------------------------------------------------------------------------


def outcome_of(
    run: RunContext,
    history: History,
    result: AttemptResult,
    role: Role | None = None,
    changed: Iterable[str] | None = None,
) -> Outcome:
    """The outcome of the last attempt's report; `changed` files replace those of the history."""
    report = result.report
    files = tuple(Artifact(type="file", path=path) for path in (history.changed if changed is None else changed))

    def ended(kind: type[AnyOutcome], summary: str, **more: Any) -> AnyOutcome:
        fields: dict[str, Any] = {"artifacts": files, **more}
        return kind(
            lineage=run.lineage,
            summary=summary,
            report=report.text,
            notes=tuple(history.notes),
            warnings=(*(() if role is None else role.warnings), *history.all_warnings, *report.corrections),
            usage=history.usage,
            model=result.model,
            backend=result.backend,
            fallbacks=result.fallbacks,
            is_isolated=result.backend != INLINE,
            duration_seconds=run.state.seconds_worked(run.now()),
            passed=history.passed,
            **fields,
        )

    if report.returned is not None:
        return _as_returned(ended, report.returned, result.reasons, run.run)
    match report.kind:
        case "answered":
            return ended(Completed, first_sentence(report.text) or "The report is empty.")
        case "asked":
            return ended(
                Blocked,
                shortened(f"It asks: {first_sentence(report.text)}"),
                question=report.text,
                errors=(_question(report.text, run.run),),
                next_steps=_how_to_answer(run.run),
            )
        case "limited":
            error = report.error or _NO_REASON
            steps = how_to_continue(run.run, error, history.budgets)
            remedy = f"Use what was found, or continue with: {steps}"
            error = structs.replace(error, recoverable=True, recommendation=remedy)
            return ended(Partial, shortened(f"Partial: {error.message}"), errors=(error,), next_steps=steps)
        case "failed" | "invalid":
            error = report.error or _NO_REASON
            return ended(Failed, shortened(error.message), errors=(error, *result.reasons))


def _without_model(outcome: Completed) -> Partial:
    """The findings of the scout, which no model has judged."""
    error = new_error("NO_MODEL", "No model is configured: the offline scout searched the files and judged nothing.")
    fields: dict[str, Any] = {name: getattr(outcome, name) for name in outcome.__struct_fields__}
    fields |= {"errors": (error,), "next_steps": error.recommendation}
    return Partial(**fields)


def _as_returned(ended: Callable[..., Outcome], returned: Return, reasons: tuple[Error, ...], run: str) -> Outcome:
    fields: dict[str, Any] = {
        "artifacts": tuple(returned.artifacts),
        "errors": returned.errors,
        "next_steps": returned.next_steps or "",
    }
    match returned.status:
        case "completed":
            return ended(Completed, returned.summary, **fields)
        case "partial":
            return ended(Partial, returned.summary, **fields)
        case "failed":
            fields["errors"] = (*returned.errors, *reasons)
            return ended(Failed, returned.summary, **fields)
        case "blocked":
            # The summary says what was done; the errors say what blocks the rest.
            fields["question"] = "\n".join(error.message for error in returned.errors) or returned.summary
            fields["next_steps"] = returned.next_steps or _how_to_answer(run)
            return ended(Blocked, returned.summary, **fields)


def _how_to_answer(run: str) -> str:
    return f'deputy resume {run} --answer "…"'


_NO_REASON = Error(
    type="execution", message="The run ended without a reason.", recoverable=True, recommendation="Try again."
)


def how_to_continue(run: str, error: Error, budgets: Sequence[BudgetUse]) -> str:
    """The command that resumes a run after this limit, with what it needs to make progress."""
    command = f"deputy resume {run}"
    match error.type:
        case "budget":
            spent = max(budgets, key=_share, default=None)
            caps = "CAPS" if spent is None else f"{spent.resource}={_doubled(spent)}"
            return f"{command} --budget {caps}"
        case "repetition":
            return f'{command} --answer "what to do differently"'
        case _:
            return command


def _share(use: BudgetUse) -> float:
    return (use.used + use.needed) / use.cap if use.cap else 1.0


def _doubled(use: BudgetUse) -> str:
    from decimal import Decimal

    cap = 2 * max(use.cap, use.used + use.needed)
    return f"{Decimal(f'{cap:.4g}'):f}" if use.resource == "cost" else f"{cap:.0f}"


def _question(text: str, run: str) -> Error:
    return Error(
        type="question",
        code="AWAITING_HUMAN_INPUT",
        message=shortened(text or "The run waits for an answer.", 300),
        recoverable=True,
        recommendation=how_to_answer(run),
    )
