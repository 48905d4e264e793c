"""Runs at the top of a tree: a call of many tasks at once, or a parent agent that a person talks to."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, json

from deputy.core.errors import Error, passed_up
from deputy.core.events import Opened, Started
from deputy.core.outcome import NO_USAGE, Blocked, Completed, Failed, Partial, shortened
from deputy.core.results import results_markdown
from deputy.core.task import Task
from deputy.engine.delegate import NATIVE, as_reported, so_far
from deputy.engine.desk import open_desk
from deputy.engine.fanout import fan_out
from deputy.engine.loop import converse, go_on, say
from deputy.engine.prompts import prompt
from deputy.engine.talk import ASK, remembered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.outcome import Outcome
    from deputy.core.results import Result
    from deputy.engine.ports import RunContext
    from deputy.engine.workshop import Workshop

DELEGATE, RUN = "delegate", "run"
PARENT_OUTPUT_TOKENS = 8192


class FanOut(Struct, frozen=True, kw_only=True):
    """What a run of many tasks was called with."""

    tasks: tuple[Task, ...]
    concurrency: int


async def delegate_all(run: RunContext, birth: Opened, workshop: Workshop) -> Outcome:
    """Hand every task to a subagent, and put their results together."""
    if birth.arguments is UNSET:
        raise TypeError("a run of many tasks has them among its arguments")
    call = json.decode(birth.arguments, type=FanOut)
    try:
        await workshop.open_purse(run, birth.grant.budget, None)
        await run.record("started", Started())
        results = await fan_out(
            run, "task", call.tasks, concurrency=call.concurrency, model=birth.model, grant=birth.grant
        )
    finally:
        workshop.forget(run.run)
    return _together(run, results)


async def parent(run: RunContext, birth: Opened, workshop: Workshop) -> Outcome:
    """Let a parent agent work on a person's prompt, with every tool and Delegate among them."""
    desk = await open_desk(
        run,
        workshop,
        label=birth.label or RUN,
        model=birth.model,
        grant=birth.grant,
        # Notes are for subagents; a parent speaks to the person, and may ask.
        flow_tools=tuple(tool for tool in workshop.flow_tools if tool.name in birth.grant.tools | {ASK}),
        output_tokens=PARENT_OUTPUT_TOKENS,
    )
    try:
        await run.record("started", Started(backend=NATIVE, model=desk.model.name))
        told = prompt("parent").format(tools=", ".join(spec.name for spec in desk.toolset().items))
        talk = remembered("\n\n".join(filter(None, (workshop.base_prompt, told))), run.past, desk.overhead())
        if not await go_on(run, talk):
            await say(run, talk, "task", birth.prompt)
        report = await converse(run, talk, desk)
        return as_reported(so_far(run, talk, desk), report, run.run)
    finally:
        workshop.forget(run.run)


def _together(run: RunContext, results: Sequence[Result]) -> Outcome:
    """One outcome for all: completed only when each is."""
    outcomes = [result.outcome for result in results]
    done = sum(isinstance(outcome, Completed) for outcome in outcomes)
    state = run.state
    began = state.started_at if state.started_at is not None else state.requested_at
    fields: dict[str, Any] = {
        "lineage": state.lineage,
        "report": results_markdown(results),
        "summary": shortened(f"{done} of {len(results)} subagents completed."),
        "usage": reduce(add, (outcome.usage for outcome in outcomes), NO_USAGE),
        "artifacts": tuple(artifact for outcome in outcomes for artifact in outcome.artifacts),
        "backend": NATIVE,
        "duration_seconds": round(max(0.0, run.now() - began), 3),
    }
    if done == len(outcomes):
        return Completed(**fields)
    errors = tuple(error for one in outcomes for error in passed_up(one.errors, one.session_id)) or (_STOPPED,)
    has_something = done or any(isinstance(outcome, Partial) for outcome in outcomes)
    return Partial(**fields, errors=errors) if has_something else _without_result(outcomes, errors, fields)


def _without_result(outcomes: Sequence[Outcome], errors: tuple[Error, ...], fields: dict[str, Any]) -> Outcome:
    """The outcome of tasks of which none has anything to show: somebody asks, or they failed."""
    asking = [outcome for outcome in outcomes if isinstance(outcome, Blocked)]
    if not asking:
        return Failed(**fields, errors=errors)
    question = "\n".join(f"[{one.lineage.path[-1].name.removeprefix('task:')}] {one.question}" for one in asking)
    return Blocked(**fields, errors=errors, question=question)


_STOPPED = Error(
    type="cancelled",
    code="CANCELLED",
    message="Subagents were cancelled.",
    recoverable=True,
    recommendation="Resume them by their session ids.",
)
