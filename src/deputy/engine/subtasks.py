"""Subtasks requested by a task: planned, approved, spawned together, joined in order, and reported back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct, json

from deputy.core.approval import ApprovalPart, cost_ceiling, spawn_request
from deputy.core.contract import schema_of
from deputy.core.errors import UsageError
from deputy.core.events import Requested
from deputy.core.fallback import PROGRAMS_ONLY
from deputy.core.field_readers import FieldProblem
from deputy.core.outcome import Completed
from deputy.core.request import GrantRequest, Request, subtask_hop
from deputy.core.subtask.context_passing import brief, file_paths, message_text, query_of, task_of, wants_ranking
from deputy.core.subtask.context_settings import ContextSettings, resolve_settings
from deputy.core.subtask.subtask_request import MAX_CONTINUATIONS, Continuation, SubtaskRequest
from deputy.core.subtask.subtask_result import failed_result, invalid_request, subtask_response
from deputy.core.subtask.template import DEFAULT, Template, check_inputs
from deputy.core.task import MAX_LABEL, Task, TaskOptions, cleaned_label
from deputy.engine.approvals import ask_person, policy_for, warn_refused
from deputy.engine.history import SUBTASK
from deputy.engine.model_availability import why_unreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.approval import ApprovalRequest
    from deputy.core.outcome import Outcome
    from deputy.core.subtask.context_passing import Briefing
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.history import History
    from deputy.engine.ports import Ranker, RunContext
    from deputy.engine.ports.subtask_services import Subtasks

UNKNOWN_WINDOW = 100_000
PASSED_SHARE = 0.6
"""The share of its context window that a subtask's prompt may fill."""
_DENIED = "The person did not approve this. Nothing was started or spent. Do the work yourself, or report without it."
_NO_APPROVER = (
    "Subtasks need approval, and no person can be asked here. Nothing was started. "
    "Do the work yourself, or report without it."
)


class SubtaskAnswer(NamedTuple):
    """The results of the subtasks, or a refusal."""

    text: str
    is_refusal: bool = False


class Plan(Struct, frozen=True, kw_only=True):
    """The plan of one request, made once, so that later template changes do not affect it."""

    template: Template
    settings: ContextSettings
    model: str
    bound: int


class NoTemplate(Struct, frozen=True, kw_only=True, tag="no_template"):
    """No template matches a request, and the default template is off."""

    subtask: str
    best: str = ""
    score: float = 0.0


class Unusable(Struct, frozen=True, kw_only=True, tag="unusable"):
    """All problems of invalid requests."""

    problems: tuple[FieldProblem, ...]


class Planned(Struct, frozen=True, kw_only=True, tag="planned"):
    """One plan per request, in order."""

    plans: tuple[Plan, ...]


# --- answers to the task ------------------------------------------------------------------------------------------


async def answer(
    run: RunContext, key: str, wanted: Continuation | tuple[FieldProblem, ...], agent: AgentContext
) -> SubtaskAnswer:
    """Run the subtasks of a Subtask call; every key begins with `key`."""
    subtasks, history = _at(agent)
    if history.continuations >= MAX_CONTINUATIONS:
        text = f"This task has requested subtasks {history.continuations} times, the maximum; finish with the results."
        given = SubtaskAnswer(_json(failed_result("execution_halted", text, limit=MAX_CONTINUATIONS)), is_refusal=True)
    elif isinstance(wanted, Continuation):
        given = await _run_subtasks(run, key, wanted, agent, subtasks, history)
    else:
        given = SubtaskAnswer(_json(invalid_request(wanted)), is_refusal=True)
    history.learn(given.text)
    return given


def _at(agent: AgentContext) -> tuple[Subtasks, History]:
    if agent.subtasks is None or agent.history is None:
        raise TypeError("the agent may not request subtasks, or its loop does not run")
    return agent.subtasks, agent.history


def _json(value: Any) -> str:
    return json.encode(value).decode()


# --- from the request to its results ------------------------------------------------------------------------------


async def _run_subtasks(
    run: RunContext, key: str, wanted: Continuation, agent: AgentContext, subtasks: Subtasks, history: History
) -> SubtaskAnswer:
    planned = await run.value(
        f"{key}:planned", Planned | NoTemplate | Unusable, _plan, wanted.requests, agent.asked, subtasks, step="plan"
    )
    if isinstance(planned, Unusable):
        return SubtaskAnswer(_json(invalid_request(planned.problems)), is_refusal=True)
    if isinstance(planned, NoTemplate):
        return SubtaskAnswer(_json(_not_found(planned)), is_refusal=True)
    approved = await _approved_files(run, key, wanted, planned.plans, agent, subtasks)
    if isinstance(approved, str):
        return SubtaskAnswer(_json(failed_result("execution_halted", approved)), is_refusal=True)
    children = await _spawned(run, key, wanted, planned.plans, agent, subtasks, history, approved)
    outcomes = await _joined(run, key, children, wanted.needed)
    return SubtaskAnswer(_results_text(wanted, outcomes, run.lineage.subtask_depth + 1))


async def _plan(requests: Sequence[SubtaskRequest], model: str, subtasks: Subtasks) -> Planned | NoTemplate | Unusable:
    index = await subtasks.templates()
    plans: list[Plan] = []
    problems: list[FieldProblem] = []
    is_single = len(requests) == 1
    for number, request in enumerate(requests):
        where = "" if is_single else f"requests[{number}]."
        found = index.match(request)
        if found is None and not subtasks.has_default:
            nearest = next(iter(index.best(request, 1)), None)
            best, score = ("", 0.0) if nearest is None else (nearest.template.name, nearest.total)
            return NoTemplate(subtask=request.type, best=best, score=score)
        plan = _plan_of(request, DEFAULT if found is None else found.template, model, subtasks, where)
        if isinstance(plan, Plan):
            plans.append(plan)
        else:
            problems += plan
    return Unusable(problems=tuple(problems)) if problems else Planned(plans=tuple(plans))


def _plan_of(
    request: SubtaskRequest, template: Template, caller_model: str, subtasks: Subtasks, where: str
) -> Plan | list[FieldProblem]:
    problems = list(check_inputs(template, request.inputs, f"{where}inputs"))
    settings = resolve_settings(request.subtype, [template.context_management, request.context_management])
    if isinstance(settings, FieldProblem):
        problems.append(FieldProblem(f"{where}{settings.field}", settings.message))
    expectations = request.return_expectations
    if isinstance(expectations, dict):
        try:
            schema_of(expectations)
        except UsageError as error:
            problems.append(FieldProblem(f"{where}return_expectations", f"is no JSON Schema that can be used: {error}"))
    model = template.model or caller_model
    window = None
    try:
        window = None if subtasks.missing_key(model) in PROGRAMS_ONLY else subtasks.window_of(model)
    except UsageError as error:
        problems.append(
            FieldProblem(f"{where}type", f"has template {template.name!r}, whose model is not available: {error}")
        )
    if problems or isinstance(settings, FieldProblem):
        return problems
    bound = int((window or UNKNOWN_WINDOW) * PASSED_SHARE)
    return Plan(template=template, settings=settings, model=model, bound=bound)


def _not_found(found: NoTemplate) -> dict[str, Any]:
    details: dict[str, Any] = {"subtaskType": found.subtask}
    if found.best:
        details |= {"bestMatch": found.best, "score": found.score}
    message = f"No template matches the subtask {found.subtask!r}, and the default template is off."
    return failed_result("template_not_found", message, **details)


async def _approved_files(
    run: RunContext, key: str, wanted: Continuation, plans: Sequence[Plan], agent: AgentContext, subtasks: Subtasks
) -> dict[str, str] | str:
    """The approved digests of the subtasks' files, none if no approval is needed; or why nothing may start."""
    has_program = None if agent.backends is None else agent.backends.has_program
    models = [plan.model for plan in plans]
    unreachable = await why_unreachable(run, key, models, subtasks.missing_key, has_program)
    if unreachable:
        return unreachable
    # Descendants were approved with the top task.
    if not run.lineage.is_top or SUBTASK in agent.without_asking:
        return {}
    match policy_for(run, f"{key}:approval", agent.approval, begun=_ids(key), ended=(key,)):
        case "granted":
            return {}
        case "refuse":
            warn_refused(agent.history, f"Subtask of {len(plans)} requests")
            return _NO_APPROVER
        case "ask":
            return await _answered(run, key, wanted, plans, agent, subtasks)


async def _answered(
    run: RunContext, key: str, wanted: Continuation, plans: Sequence[Plan], agent: AgentContext, subtasks: Subtasks
) -> dict[str, str] | str:
    """The approved digests of the files; the denial text if a person denies the subtasks."""
    tools = tuple(sorted(_tools(agent)))
    tasks = [
        Task(
            label=cleaned_label(request.type),
            prompt=task_of(request, plan.template),
            model=plan.model,
            timeout=subtasks.seconds,
            tools=tools,
            context=file_paths(request, plan.template),
        )
        for request, plan in zip(wanted.requests, plans, strict=True)
    ]
    requests = [
        ApprovalPart(name=f"request {number}", text=_json(request)) for number, request in enumerate(wanted.requests, 1)
    ]
    paths = tuple(dict.fromkeys(path for task in tasks for path in task.context))

    async def make() -> ApprovalRequest:
        await agent.ledger.refresh()
        return spawn_request(
            tasks,
            tool=SUBTASK,
            model=agent.asked,
            cost=_cost(tasks, agent, subtasks),
            concurrency=len(tasks),
            files=await agent.folder.digests(paths),
            more=requests,
            grant=agent.grant,
        )

    verdict = await ask_person(
        run,
        f"{key}:approval",
        make,
        begun=_ids(key),
        emit=agent.emit,
        approval=agent.approval,
        folder=agent.folder,
    )
    return verdict.request.digests if verdict.is_yes else _DENIED


def _cost(tasks: Sequence[Task], agent: AgentContext, subtasks: Subtasks) -> str:
    left = agent.ledger.remaining("cost")
    return cost_ceiling(tasks, lambda task: subtasks.prices_of(task.model or agent.asked), left).text


async def _spawned(
    run: RunContext,
    key: str,
    wanted: Continuation,
    plans: Sequence[Plan],
    agent: AgentContext,
    subtasks: Subtasks,
    history: History,
    approved: dict[str, str],
) -> list[str]:
    """Spawn all children before any is joined, so that no spawn depends on another child's speed."""
    is_inherited = any(plan.settings.inherit_context != "none" for plan in plans)
    conversation = [message_text(message) for message in history.conversation.messages] if is_inherited else []
    earlier = tuple(history.earlier)

    async def briefed(index: int, request: SubtaskRequest, plan: Plan) -> Briefing:
        scores: Sequence[float] = ()
        is_full = plan.settings.inherit_context == "full"
        if wants_ranking(request, plan.template, plan.settings):
            name, query = f"{key}.{index}:ranked", query_of(request)
            # The last message is the request itself, and would be the most relevant one.
            scores = await run.value(name, list[float], _rank, query, conversation[:-1], subtasks.ranker, step="rank")
        return brief(
            request,
            plan.template,
            plan.settings,
            bound=plan.bound,
            conversation=conversation[:-1] if scores else conversation if is_full else (),
            scores=scores,
            earlier=earlier,
        )

    def requested(index: int, request: SubtaskRequest, plan: Plan, briefing: Briefing) -> Requested:
        caller = run.lineage
        asked = Request(
            session_id=ids[index],
            target=subtask_hop(request.type),
            prompt=task_of(request, plan.template),
            caller=caller,
            caller_grant=agent.grant,
            description=request.description,
            inputs=request.inputs,
            wanted=GrantRequest(tools=_tools(agent)),
            # The time limit applies to the whole chain of subtasks.
            seconds=None if caller.subtask_depth else subtasks.seconds,
            provider=plan.model.partition(":")[0],
            subtask_limit=request.max_depth,
        )
        expectations = request.return_expectations or plan.template.return_expectations
        options = TaskOptions(
            subtask=briefing,
            context_digests={path: approved[path] for path in briefing.file_paths if path in approved},
            schema=expectations if isinstance(expectations, dict) else None,
            root=agent.root,
            routing=agent.routing,
            index=index,
            total=len(plans),
        )
        return Requested(
            request=asked, label=cleaned_label(request.type)[:MAX_LABEL], model=plan.model, options=options
        )

    planned = list(enumerate(zip(wanted.requests, plans, strict=True)))
    async with asyncio.TaskGroup() as group:
        briefing = [group.create_task(briefed(index, request, plan)) for index, (request, plan) in planned]
    # No await between the spawns, so that children start in the order of the requests.
    ids = await run.new_ids(_ids(key), len(plans))
    async with asyncio.TaskGroup() as group:
        spawning = [
            group.create_task(run.spawn(f"{key}.{index}", requested(index, request, plan, briefing[index].result())))
            for index, (request, plan) in planned
        ]
    return [task.result() for task in spawning]


def _ids(key: str) -> str:
    """Key of the children's ids; its presence means that the subtasks were approved."""
    return f"{key}:ids"


def _tools(agent: AgentContext) -> frozenset[str]:
    """The tools of a subtask: its parent's read-only tools, and Subtask."""
    readers = frozenset(tool.name for tool in agent.tools.definitions() if tool.traits.reads_only)
    return (readers & agent.grant.tools) | {SUBTASK}


async def _rank(query: str, texts: list[str], ranker: Ranker) -> list[float]:
    return [round(score, 4) for score in await ranker.rank(query, texts)]


async def _joined(run: RunContext, key: str, children: Sequence[str], needed: int) -> list[Outcome]:
    """All outcomes in order; once enough children completed, the others are cancelled."""
    left = needed
    ended: set[str] = set()

    async def one(index: int, child: str) -> Outcome:
        nonlocal left
        outcome = await run.join(f"{key}.{index}:joined", child)
        ended.add(child)
        left -= isinstance(outcome, Completed)
        if left == 0 and len(ended) < len(children):
            left = -1
            for other in children:
                if other not in ended:
                    await run.stop(other, "enough of its sibling subtasks have completed")
        return outcome

    async with asyncio.TaskGroup() as group:
        joining = [group.create_task(one(index, child)) for index, child in enumerate(children)]
    return [task.result() for task in joining]


def _results_text(wanted: Continuation, outcomes: Sequence[Outcome], depth: int) -> str:
    results = [
        subtask_response(outcome, subtask_type=request.type, depth=depth, subtype=request.subtype)
        for request, outcome in zip(wanted.requests, outcomes, strict=True)
    ]
    form: dict[str, Any] = results[0]
    if len(results) > 1:
        completed = sum(isinstance(outcome, Completed) for outcome in outcomes)
        form = {"join": wanted.join, "completed": completed, "total": len(results), "results": results}
    if wanted.warnings:
        form = {**form, "warnings": wanted.warnings}
    return _json(form)
