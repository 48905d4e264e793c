"""Root runs: a fan-out call of many tasks, or a parent agent at a terminal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, ValidationError, json, structs

from deputy.core.approval import backend_parts, read_decision, spawn_request
from deputy.core.errors import Error, passed_up, remedy
from deputy.core.events import QuestionAnswered, QuestionAsked, Resumed, RunOpened, Started
from deputy.core.fallback import NATIVE, Candidate
from deputy.core.outcome import Blocked, Completed, Failed, Partial, Rejected, shortened
from deputy.core.results import results_markdown
from deputy.core.state import ASKED
from deputy.core.task import DELEGATE as DELEGATE_TOOL
from deputy.core.task import Task
from deputy.engine.agent_context import open_agent
from deputy.engine.approvals import ask_person
from deputy.engine.attempt import AttemptInput
from deputy.engine.delegate import outcome_of
from deputy.engine.fallback import FallbackRunner
from deputy.engine.fanout import fan_out, ids_key
from deputy.engine.history import ASK, remembered
from deputy.engine.loop import continue_history
from deputy.engine.prompts import prompt
from deputy.engine.task_prompt import append_prompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.approval import ApprovalRequest
    from deputy.core.outcome import Outcome
    from deputy.core.request import Grant, Lineage
    from deputy.core.results import Result
    from deputy.engine.ports import RunContext
    from deputy.engine.services import Services

DELEGATE, RUN = "delegate", "run"
TASK = "task"
"""Key prefix of a call's tasks."""
CALL_APPROVAL = "approval"
"""Key of the approval of a whole run, before it does anything."""
PARENT_OUTPUT_TOKENS = 8192


class FanOut(Struct, frozen=True, kw_only=True):
    """The arguments of a fan-out run."""

    tasks: tuple[Task, ...]
    concurrency: int
    must_ask: bool = False
    """Whether a person must approve the call first."""
    cost: str = ""
    """The cost bound, as text."""
    notes: str = ""
    """Further approval text: the backends of the tasks."""
    approval_timeout_seconds: float | None = None
    """How long to wait for the approval; None means no limit."""
    is_counted: bool = True
    """Whether these tasks count against the spawn quota; a program may submit thousands."""


async def run_call(run: RunContext, start: RunOpened, services: Services) -> Outcome:
    """Delegate every task and combine the results."""
    if start.arguments is UNSET:
        raise TypeError("a fan-out run needs arguments")
    call = json.decode(start.arguments, type=FanOut)
    with services.tracking(run):
        await services.open_ledger(run, start.grant.budget, None, counts_own=call.is_counted)
        files = {}
        if call.must_ask:
            files = await approved_files(run, call, start.model, start.grant, services, begun=ids_key(TASK))
        if files is None:
            return not_approved(start.lineage)
        await run.record("started", Started())
        # Count once for all children, which would otherwise wait for it one by one.
        await services.native_failures(start.lineage.root_id)
        results = await fan_out(
            run,
            TASK,
            call.tasks,
            concurrency=call.concurrency,
            model=start.model,
            grant=start.grant,
            routing=structs.replace(start.routing, session_model=start.routing.session_model or start.model),
            messages=_messages(run),
            context_digests=files,
            is_counted=call.is_counted,
        )
    return _together(run, results)


def _messages(run: RunContext) -> dict[str, str]:
    """The messages of the last resume, by session id of the subagent."""
    said = [record.event.message for record in run.history if isinstance(record.event, Resumed)]
    if not said or said[-1] is UNSET:
        return {}
    try:
        return json.decode(said[-1], type=dict[str, str])
    except ValidationError:
        # A message to the fan-out run itself has no recipient.
        return {}


async def approved_files(
    run: RunContext, call: FanOut, model: str, grant: Grant, services: Services, *, begun: str
) -> dict[str, str] | None:
    """The approved digests of the context files; None if the call was denied.

    An approval of an earlier round still counts.
    """
    before = approved_before(run)
    if before is not None:
        return before.digests
    folder = services.files.open(grant)

    async def make() -> ApprovalRequest:
        paths = tuple(dict.fromkeys(path for task in call.tasks for path in task.context))
        return spawn_request(
            call.tasks,
            tool=DELEGATE_TOOL,
            model=model,
            cost=call.cost,
            concurrency=call.concurrency,
            files=await folder.digests(paths),
            more=backend_parts(call.notes),
            grant=grant,
        )

    verdict = await ask_person(
        run,
        CALL_APPROVAL,
        make,
        begun=begun,
        emit=partial(services.emit, run),
        approval=services.approval,
        folder=folder,
        approval_timeout_seconds=call.approval_timeout_seconds,
    )
    return verdict.request.digests if verdict.is_yes else None


def approved_before(run: RunContext) -> ApprovalRequest | None:
    """The approved request of this run, also of an earlier round."""
    asked: dict[str, QuestionAsked] = {}
    for record in run.history:
        if isinstance(record.event, QuestionAsked):
            asked[record.key.removesuffix(ASKED)] = record.event
        elif isinstance(record.event, QuestionAnswered) and (question := asked.get(record.key)) is not None:
            is_call = record.key.rpartition("/")[2].startswith(CALL_APPROVAL)
            if is_call and question.request and read_decision(record.event.body, question.digest) != "no":
                return question.request
    return None


def not_approved(lineage: Lineage) -> Rejected:
    """The outcome of a denied call."""
    error = Error(
        type="not_approved",
        code="NOT_APPROVED",
        message="The call was not approved.",
        recoverable=True,
        recommendation="Nothing was started or spent. Change the call, or do the work without a subagent.",
    )
    return Rejected(lineage=lineage, summary="Not started: the call was not approved.", errors=(error,))


async def run_parent(run: RunContext, start: RunOpened, services: Services) -> Outcome:
    """Run a parent agent on a person's prompt, with Delegate among its tools."""
    model = services.open_model(start.model)
    agent = await open_agent(
        run,
        services,
        label=start.label or RUN,
        model=start.model,
        opened=model,
        window=await services.window(run, start.model, model),
        grant=start.grant,
        # Notes are for subagents; a parent talks to the person directly.
        flow_tools=tuple(tool for tool in services.flow_tools if tool.name in start.grant.tools | {ASK}),
        output_tokens=PARENT_OUTPUT_TOKENS,
        routing=start.routing,
    )
    with services.tracking(run):
        await run.record("started", Started(backend=NATIVE, model=agent.model.name))
        text = prompt("parent").format(tools=", ".join(spec.name for spec in agent.toolset().items))
        prompts = (
            services.base_prompt,
            "" if start.role is None else start.role.prompt,
            text,
            "" if agent.subtasks is None else prompt("continuation"),
        )
        history = remembered("\n\n".join(filter(None, prompts)), run.history, agent.overhead())
        if not await continue_history(run, history, agent):
            await append_prompt(run, agent, history, services, start.prompt)
        work = AttemptInput(run=run, services=services, agent=agent, history=history, prompt=start.prompt)
        fallback = FallbackRunner(run, services, agent.label, agent.asked, start.routing, is_parent=True)
        result = await fallback.run(work, Candidate(backend=NATIVE, model=agent.asked))
    return outcome_of(run, history, result, start.role)


def _together(run: RunContext, results: Sequence[Result]) -> Outcome:
    """Combine the results; completed only if every task completed."""
    outcomes = [result.outcome for result in results]
    done = sum(isinstance(outcome, Completed) for outcome in outcomes)
    fields: dict[str, Any] = {
        "lineage": run.lineage,
        "report": results_markdown(results),
        "summary": shortened(f"{done} of {len(results)} subagents completed."),
        "artifacts": tuple(artifact for outcome in outcomes for artifact in outcome.artifacts),
        "warnings": tuple(warning for outcome in outcomes for warning in outcome.warnings),
        "backend": NATIVE,
        "duration_seconds": run.state.seconds_worked(run.now()),
    }
    if done == len(outcomes):
        return Completed(**fields)
    errors = tuple(error for one in outcomes for error in passed_up(one.errors, one.session_id))
    errors = errors or (_stopped(run.run),)
    fields["next_steps"] = remedy(errors)
    has_something = done or any(isinstance(outcome, Partial) for outcome in outcomes)
    return Partial(**fields, errors=errors) if has_something else _without_result(outcomes, errors, fields)


def _without_result(outcomes: Sequence[Outcome], errors: tuple[Error, ...], fields: dict[str, Any]) -> Outcome:
    """The outcome when no task has a result: blocked if one asks, else failed."""
    asking = [outcome for outcome in outcomes if isinstance(outcome, Blocked)]
    if not asking:
        return Failed(**fields, errors=errors)
    question = "\n".join(f"[{one.lineage.path[-1].name.removeprefix('task:')}] {one.question}" for one in asking)
    return Blocked(**fields, errors=errors, question=question)


def _stopped(call: str) -> Error:
    return Error(
        type="cancelled",
        code="CANCELLED",
        message="Subagents were cancelled.",
        recoverable=True,
        recommendation=f"Continue those that did not complete: deputy resume {call}",
    )
