"""Resume a run: pass answers to the runs that wait for them, and restart what did not complete."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Raw, json

from deputy.core.errors import LeaseHeld, UnknownRun, Unquoted, UsageError
from deputy.core.events import ANSWER, APPROVAL, NO_CHANGES, QuestionAsked, Requested, RunOpened
from deputy.core.limits import priced
from deputy.core.outcome import shortened
from deputy.core.state import ASKED, answer_key
from deputy.engine.budget import amount
from deputy.engine.call import DELEGATE, FanOut
from deputy.engine.recover import has_time_below, seconds_late
from deputy.interfaces.call_results import children_of, tasks_of
from deputy.interfaces.nesting import refuse_below_run
from deputy.interfaces.questions import question_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from deputy.core.approval import ApprovalRequest, Question
    from deputy.core.events import ResumeChanges
    from deputy.core.limits import Budget
    from deputy.core.state import State
    from deputy.interfaces.model_selection import ModelSelection
    from deputy.wiring import Runtime

Answer: TypeAlias = str | Mapping[str, str] | None
"""The answer to the waiting run; where several wait, answers by session id."""

_SHOWN = 200


async def resume_run(
    runtime: Runtime,
    state: State,
    answer: Answer,
    changes: ResumeChanges = NO_CHANGES,
    request: ApprovalRequest | None = None,
    approval_timeout_seconds: float | None = None,
) -> None:
    """Resume a run; a fan-out call resumes its tasks that did not complete, within its own limits."""
    _check_not_empty(answer)
    check_ended(state, answer)
    if state.is_live and state.is_cancelling and await is_running(runtime, state.run):
        raise UsageError("ID", state.run, "the run is being cancelled; resume it when it has ended")
    answers = await _addressed(runtime, state, answer)
    if state.is_live:
        if changes != NO_CHANGES:
            raise UsageError("ID", state.run, "the run has not ended; a budget or a model is replaced when it has")
        await _revive(runtime, state, answers)
        return
    message = (answers or None) if state.command == DELEGATE else answers.get(state.run)
    try:
        await runtime.engine.resume(
            state.run, message, request=request, approval_timeout_seconds=approval_timeout_seconds, changes=changes
        )
    except LeaseHeld:
        # Another process has just resumed it.
        raise _at_work(state.run) from None


async def check_changes(
    runtime: Runtime, models: ModelSelection, state: State, changes: ResumeChanges, ceiling: Budget
) -> None:
    """Refuse a model that cannot be used, and caps that this Deputy does not have or that are reached already."""
    budget, model = changes.budget, changes.model
    if model:
        runtime.models.check(model)
        await models.ensure_usable(model)
    if not budget.capped:
        return
    refuse_below_run("budget")
    models.check_cost(budget, model or state.model, "budget.cost")
    for resource, cap in budget.excess(ceiling):
        most = getattr(ceiling, resource)
        raise UsageError("budget", Unquoted(priced(resource, cap)), f"give at most {priced(resource, most)}")
    below = await runtime.journal.descendants(state.run)
    used = amount(reduce(add, (one.usage for one in below), state.usage))
    for resource in budget.capped:
        cap, spent = getattr(budget, resource), getattr(used, resource) or 0
        if cap <= spent:
            expected = f"the run has used {priced(resource, spent)}, which count too; give more"
            raise UsageError("budget", Unquoted(priced(resource, cap)), expected)


def check_ended(state: State, answer: Answer) -> None:
    """Refuse an ended run that has nothing left to do."""
    if state.status == "rejected":
        raise UsageError("ID", state.run, "this run was rejected and never started; delegate the work again")
    if state.status == "completed" and answer is None:
        raise UsageError("ID", state.run, "this run is completed; give an answer that says what more to do")


async def ensure_not_running(runtime: Runtime, run: str) -> None:
    """Refuse a run that another process is running."""
    if not runtime.engine.has(run) and await is_running(runtime, run):
        raise _at_work(run)


async def is_running(runtime: Runtime, run: str) -> bool:
    """Whether a process is running this run."""
    return any(one.state.run == run and not one.is_orphaned for one in await runtime.journal.unfinished())


async def has_workers(runtime: Runtime, run: str) -> bool:
    """Whether workers carry out this live run."""
    if runtime.store.is_local:
        return False
    holder = (await runtime.journal.read(lambda queries: queries.holders((run,)))).get(run)
    return holder is not None and bool(holder.queue)


async def tools_of(runtime: Runtime, state: State) -> frozenset[str]:
    """The tools that a run was granted; of a fan-out call, those of its tasks."""
    match next(iter(await runtime.journal.records(state.run))).event:
        case RunOpened(command=command, grant=grant, arguments=Raw() as arguments) if command == DELEGATE:
            tasks = json.decode(arguments, type=FanOut).tasks
            return frozenset[str]().union(*(task.wanted.granted(grant).tools for task in tasks))
        case RunOpened(grant=grant):
            return grant.tools
        case Requested(request=request):
            return request.wanted.granted(request.caller_grant).tools
        case _:
            raise UnknownRun(state.run)


async def questions(runtime: Runtime, state: State) -> tuple[Question, ...]:
    """The questions that a run, or the tasks of a call, wait for."""
    found: list[Question] = []
    for one in await _asking(runtime, state):
        key, topic = next(iter(one.waits.items()), ("", ANSWER))
        record = await runtime.journal.get(one.run, f"{key}{ASKED}") if key else None
        asked = QuestionAsked(topic=topic, question=one.question) if record is None else record.event
        if isinstance(asked, QuestionAsked):
            found.append(question_of(one.run, one.label or one.command, asked))
    return tuple(found)


async def unfinished(runtime: Runtime, state: State) -> list[State]:
    """The tasks of a call that a resume would continue."""
    if state.command != DELEGATE:
        return []
    below = {one.run: one for one in await runtime.journal.descendants(state.run)}
    children = children_of(await runtime.journal.records(state.run))
    tasks = (below.get(children[index]) for index in sorted(children))
    return [one for one in tasks if one is not None and one.status != "completed"]


async def remaining_tasks(runtime: Runtime, state: State) -> tuple[tuple[str, State | None], ...]:
    """The label of each task of a call that is not completed, in their order, and its state if it has started."""
    records = await runtime.journal.records(state.run)
    children = children_of(records)
    below = {one.run: one for one in await runtime.journal.descendants(state.run)}
    tasks = [(task.label, below.get(children.get(index, ""))) for index, task in enumerate(tasks_of(records))]
    return tuple((label, one) for label, one in tasks if one is None or one.status != "completed")


async def stopped_before(runtime: Runtime, state: State) -> frozenset[str]:
    """Of an interrupted run: itself if it is overdue; of a call, its tasks that ended or are overdue."""
    if not state.is_live:
        return frozenset()
    if state.command != DELEGATE:
        return frozenset({state.run} if await _is_late(runtime, state) else ())
    tasks = await unfinished(runtime, state)
    return frozenset([one.run for one in tasks if not one.is_live or await _is_late(runtime, one)])


async def needs_resume(runtime: Runtime, run: str, before: Collection[str]) -> bool:
    """Whether an ended run lacks only tasks that had stopped before the resume, none of them blocked."""
    state = await runtime.engine.get(run)
    if state is None or state.status not in ("partial", "failed"):
        return False
    tasks = await unfinished(runtime, state) if state.command == DELEGATE else [state]
    return bool(tasks) and all(one.run in before and one.status != "blocked" for one in tasks)


async def _is_late(runtime: Runtime, state: State) -> bool:
    now = runtime.services.world.now()
    return bool(seconds_late(state, now)) and not has_time_below(await runtime.journal.descendants(state.run), now)


async def finish_caller(runtime: Runtime, run: str) -> None:
    """Update the outcome of a call whose last open task was resumed alone and has completed; no model is asked."""
    state = await runtime.engine.get(run)
    caller = None if state is None or state.parent is None else await runtime.engine.get(state.parent)
    if caller is None or caller.command != DELEGATE or caller.is_live or caller.status == "completed":
        return
    if not await unfinished(runtime, caller):
        try:
            await runtime.engine.resume(caller.run)
        except LeaseHeld:
            # Another of its tasks has completed too, and that resume updates the call.
            return
        await runtime.engine.result(caller.run)
        await runtime.engine.deliver(caller.run, "caller")


async def _asking(runtime: Runtime, state: State) -> list[State]:
    """The runs that wait for an answer: a live run and its descendants, or the blocked tasks of an ended call."""
    if state.is_live:
        # Read unread answers before the states: in the other order, an answer taken in between would be in neither.
        ready = set(await runtime.journal.addressed())
        now = await runtime.engine.get(state.run) or state
        every = (now, *await runtime.journal.descendants(state.run))
        return [one for one in every if any((one.run, topic) not in ready for topic in one.waits.values())]
    tasks = await unfinished(runtime, state) if state.command == DELEGATE else [state]
    return [one for one in tasks if one.status == "blocked"]


async def _addressed(runtime: Runtime, state: State, answer: Answer) -> dict[str, str]:
    """The answers by session id; an answer without an id is for the only run that waits."""
    asking = await _asking(runtime, state)
    if isinstance(answer, Mapping):
        _check_addresses(state, asking, answer)
        return dict(answer)
    if answer is None:
        # With an answerer, a live run asks its question again.
        if asking and not (state.is_live and runtime.services.can_ask):
            raise _unanswered(state, asking)
        return {}
    if len(asking) > 1:
        raise _unanswered(state, asking)
    if asking:
        return {asking[0].run: answer}
    if state.is_live and await is_running(runtime, state.run):
        expected = "the run is running and asks nothing, so the answer was not taken; resume it when it has ended"
        raise UsageError("answer", answer, f"{expected}, or answer one of its tasks by its own id")
    if state.is_live:
        raise UsageError(
            "answer", answer, "the run was interrupted and asks nothing; resume it first, without an answer"
        )
    if state.command != DELEGATE:
        return {state.run: answer}
    tasks = await unfinished(runtime, state)
    if not tasks:
        raise UsageError("ID", state.run, "all its tasks are completed; resume one of them by its own id")
    return {one.run: answer for one in tasks}


def _check_not_empty(answer: Answer) -> None:
    for given in answer.values() if isinstance(answer, Mapping) else [answer]:
        if given is not None and not given.strip():
            raise UsageError("answer", given, "give an answer that is not blank")


def _check_addresses(state: State, asking: Sequence[State], answers: Mapping[str, str]) -> None:
    known = [one.run for one in asking]
    strangers = [run for run in answers if run not in known]
    if strangers:
        raise UsageError("answer", strangers[0], f"this run asks nothing; runs that ask: {', '.join(known) or 'none'}")
    left = [one for one in asking if one.run not in answers]
    if left:
        raise _unanswered(state, left)


def _unanswered(state: State, asking: Sequence[State]) -> UsageError:
    """The error that lists the open questions, each with how to answer it."""
    if [one.run for one in asking] == [state.run] and APPROVAL in state.waits.values():
        approve = f"`deputy approve {state.run}`, or `deputy approve {state.run} --deny`"
        return UsageError("ID", state.run, f"the run waits for approval: {approve}, then resume it ({_asked(state)})")
    if [one.run for one in asking] == [state.run]:
        return UsageError("ID", state.run, f"the run waits for an answer: give --answer TEXT ({_asked(state)})")
    text = "; ".join(f"[{one.label}] asks: {_asked(one)} — {_how_to_answer(one)}" for one in asking)
    return UsageError("ID", state.run, f"subagents wait for answers; answer them first. {text}")


def _how_to_answer(state: State) -> str:
    is_approval = APPROVAL in state.waits.values()
    return f"deputy approve {state.run}" if is_approval else f'deputy resume {state.run} --answer "…"'


def _asked(state: State) -> str:
    flat = " ".join(state.question[: _SHOWN * 4].split())
    return shortened(flat, _SHOWN) or "see `deputy show`"


async def _revive(runtime: Runtime, state: State, answers: Mapping[str, str]) -> None:
    """Send the answers to the waiting runs, and resume a run whose process is gone."""
    found = {run: await runtime.engine.get(run) for run in answers}
    waiting = [one for one in found.values() if one is not None and one.waits]
    # All messages are checked before the first is sent.
    messages = [_message(one, answers[one.run]) for one in waiting]
    counts = {
        run for run, topic, key, body in messages if await runtime.engine.send(run, topic, body, key=answer_key(key))
    }
    # A run that no longer waits has taken another answer, or has ended.
    late = [(run, answer) for run, answer in answers.items() if run not in counts]
    if late and not counts:
        raise _too_late(*late[0], found[late[0][0]])
    # Accepted answers take effect even when others came too late.
    is_taken_up = await runtime.engine.ensure_running(state.run) or runtime.engine.has(state.run)
    after = await runtime.engine.get(state.run)
    if not is_taken_up and not answers and after is not None and after.is_live:
        raise _at_work(state.run)
    if late:
        raise _too_late(*late[0], found[late[0][0]])


def _too_late(run: str, answer: str, state: State | None) -> UsageError:
    if state is None or not state.is_live:
        return UsageError("answer", answer, f"the answer came too late: {run} has ended; see `deputy show {run}`")
    return UsageError(
        "answer", answer, f"the answer came too late: {run} has accepted another one; resume without an answer"
    )


def _at_work(run: str) -> UsageError:
    return UsageError("ID", run, f"another process is running it; follow it with `deputy watch {run}`")


def _message(state: State, answer: str) -> tuple[str, str, str, str]:
    """The message with an answer: run, topic, key and body."""
    key, topic = next(iter(state.waits.items()))
    if topic == APPROVAL:
        way = f"run `deputy approve {state.run}`"
        raise UsageError("answer", answer, f"{state.run} waits for approval, which no text can give: {way}")
    return state.run, topic, key, answer
