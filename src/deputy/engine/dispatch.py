"""The workflow of a run: an approval to resume, the declared hooks, and the flow of its kind."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, assert_never

from msgspec import json, structs

from deputy.core.events import NO_CHANGES, Requested, Resumed, Returned, RunOpened
from deputy.core.state import RESUME_APPROVAL
from deputy.core.task import Task
from deputy.engine.approvals import ask_person, policy_for
from deputy.engine.call import (
    CALL_APPROVAL,
    DELEGATE,
    FanOut,
    approved_before,
    approved_files,
    not_approved,
    run_call,
    run_parent,
)
from deputy.engine.delegate import ADMISSION, delegate
from deputy.engine.history import of_rounds_that_worked
from deputy.engine.refine import REFINE, refine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.events import Event, Record
    from deputy.core.limits import Budget
    from deputy.core.outcome import Outcome
    from deputy.core.request import Grant
    from deputy.core.state import State
    from deputy.engine.ports import RunContext, RunStart
    from deputy.engine.services import Services


async def run_workflow(run: RunContext, start: RunStart, services: Services) -> Outcome:
    """Execute a run; a denied resume keeps the old outcome, and a hook may end the run before it works."""
    if not await _may_resume(run, services) and (before := outcome_before(run)) is not None:
        return before
    # A start that comes from the caller is not masked yet, as in the journal.
    start = as_resumed(services.keys.mask_event(start), run.history)
    if isinstance(start, Requested) and start.options.must_ask and not await _may_start(run, start, services):
        return not_approved(run.lineage)
    for hook in services.before_run:
        outcome = await hook(run, start)
        if outcome is not None:
            return outcome
    match start:
        case Requested():
            return await delegate(run, start, services)
        case RunOpened(command=command) if command == DELEGATE:
            return await run_call(run, start, services)
        case RunOpened(command=command) if command == REFINE:
            return await refine(run, start, services)
        case RunOpened():
            return await run_parent(run, start, services)
        case _:
            assert_never(start)


def as_resumed(start: RunStart, history: Sequence[Record]) -> RunStart:
    """The start of a run with the budget and the model that its resumes have replaced."""
    for record in of_rounds_that_worked(history):
        if not isinstance(record.event, Resumed) or record.event.changes == NO_CHANGES:
            continue
        changes = record.event.changes
        model = changes.model or start.model
        if isinstance(start, RunOpened):
            routing = structs.replace(start.routing, session_model=changes.model or start.routing.session_model)
            start = structs.replace(start, model=model, routing=routing, grant=_raised(start.grant, changes.budget))
        else:
            request = start.request
            wanted = structs.replace(request.wanted, budget=request.wanted.budget.replaced(changes.budget))
            caller = _raised(request.caller_grant, changes.budget)
            start = structs.replace(
                start, model=model, request=structs.replace(request, wanted=wanted, caller_grant=caller)
            )
    return start


def _raised(grant: Grant, budget: Budget) -> Grant:
    return structs.replace(grant, budget=grant.budget.replaced(budget))


async def _may_resume(run: RunContext, services: Services) -> bool:
    """Whether the last resume needs no approval, or a person approves it."""
    resumed = next((one.event for one in reversed(run.history) if isinstance(one.event, Resumed)), None)
    if not run.state.round or resumed is None or resumed.request is None:
        return True
    verdict = await ask_person(
        run,
        RESUME_APPROVAL,
        resumed.request,
        begun="started",
        emit=partial(services.emit, run),
        approval=services.approval,
        approval_timeout_seconds=resumed.approval_timeout_seconds,
    )
    return verdict.is_yes


async def _may_start(run: RunContext, start: Requested, services: Services) -> bool:
    """Whether a person approves the delegation as it was requested."""
    request, options = start.request, start.options
    policy = policy_for(run, CALL_APPROVAL, services.approval, begun=ADMISSION, ended=())
    if policy != "ask":
        return policy == "granted" or approved_before(run) is not None
    task = Task(
        label=start.label,
        prompt=request.prompt,
        context=options.context,
        model=start.model,
        agent=request.target.name,
        max_output_tokens=options.max_output_tokens,
        tools=None if request.wanted.tools is None else tuple(sorted(request.wanted.tools)),
        timeout=request.seconds,
        return_format=options.return_format,
        isolation=options.isolation,
        without_asking=options.without_asking,
        budget=request.wanted.budget,
        schema=options.schema,
        role=options.role,
        degradation=options.degradation,
    )
    # Decoded, because a replay compares the digest of a decoded start: 60 and 60.0 seconds differ as JSON.
    call = json.decode(json.encode(FanOut(tasks=(task,), concurrency=1, cost=options.cost)), type=FanOut)
    files = await approved_files(run, call, start.model, request.caller_grant, services, begun=ADMISSION)
    return files is not None


def outcome_before(run: RunContext) -> Outcome | None:
    """The outcome of the previous round; None in the first."""
    return _last_outcome([one.event for one in run.history])


def unapproved_ending(state: State, events: Sequence[Event]) -> Outcome | None:
    """The outcome of a run denied before it worked; None if it has begun and continues without."""
    if any(key.endswith(RESUME_APPROVAL) for key in state.waits):
        return _last_outcome(events)
    is_begun = state.started_at is not None
    return None if is_begun or state.lineage is None else not_approved(state.lineage)


def _last_outcome(events: Sequence[Event]) -> Outcome | None:
    return next((event.outcome for event in reversed(events) if isinstance(event, Returned)), None)
