"""Going on with a run: whoever asks gets an answer, and what did not complete works again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Raw, json

from deputy.core.errors import LeaseHeld, UnknownRun, UsageError
from deputy.core.events import ANSWER, APPROVAL, QuestionAsked, Requested, RunOpened
from deputy.core.outcome import shortened
from deputy.core.state import ASKED, answer_key
from deputy.engine.call import DELEGATE, FanOut
from deputy.engine.recover import has_time_below, seconds_late
from deputy.interfaces.fanout_results import children_of, tasks_of
from deputy.interfaces.questions import question_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from deputy.core.approval import ApprovalRequest
    from deputy.core.state import State
    from deputy.interfaces.questions import Question
    from deputy.wiring import Runtime

Answer: TypeAlias = str | Mapping[str, str] | None
"""What the one who asks is told; where several ask, by their session ids."""

_SHOWN = 200


async def resume_run(
    runtime: Runtime,
    state: State,
    answer: Answer,
    request: ApprovalRequest | None = None,
    approval_timeout_seconds: float | None = None,
) -> None:
    """Put a run to work again; a call of tasks goes on with those that did not complete, within its own bounds."""
    _check_not_empty(answer)
    answers = await _addressed(runtime, state, answer)
    if state.is_live:
        await _revive(runtime, state, answers)
        return
    message = (answers or None) if state.command == DELEGATE else answers.get(state.run)
    try:
        await runtime.engine.resume(
            state.run, message, request=request, approval_timeout_seconds=approval_timeout_seconds
        )
    except LeaseHeld:
        # Somebody else has gone on with it in this moment.
        raise _at_work(state.run) from None


async def ensure_not_running(runtime: Runtime, run: str) -> None:
    """Refuse a run that another process is at work on, before anything is said to it."""
    statuses = await runtime.journal.unfinished()
    if not runtime.engine.has(run) and any(one.state.run == run and not one.is_orphaned for one in statuses):
        raise _at_work(run)


async def tools_of(runtime: Runtime, state: State) -> frozenset[str]:
    """The tools that a run was granted; those of its tasks, where it is a call that only hands them on."""
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
    """What a run, or the tasks of a call, wait for a person to say."""
    found: list[Question] = []
    for one in await _asking(runtime, state):
        key, topic = next(iter(one.waits.items()), ("", ANSWER))
        record = await runtime.journal.get(one.run, f"{key}{ASKED}") if key else None
        asked = QuestionAsked(topic=topic, question=one.question) if record is None else record.event
        if isinstance(asked, QuestionAsked):
            found.append(question_of(one.run, one.label or one.command, asked))
    return tuple(found)


async def unfinished(runtime: Runtime, state: State) -> list[State]:
    """The tasks of a call that would be gone on with."""
    if state.command != DELEGATE:
        return []
    below = {one.run: one for one in await runtime.journal.descendants(state.run)}
    # In the order of the tasks, whichever was born first.
    children = children_of(await runtime.journal.records(state.run))
    tasks = (below.get(children[index]) for index in sorted(children))
    return [one for one in tasks if one is not None and one.status != "completed"]


async def remaining_labels(runtime: Runtime, state: State) -> tuple[str, ...]:
    """The labels of a call's tasks that are not completed, in their order; some may never have begun."""
    records = await runtime.journal.records(state.run)
    children = children_of(records)
    done = {one.run for one in await runtime.journal.descendants(state.run) if one.status == "completed"}
    return tuple(task.label for index, task in enumerate(tasks_of(records)) if children.get(index) not in done)


async def stopped_before(runtime: Runtime, state: State) -> frozenset[str]:
    """Of an interrupted run: itself when its time is up, or the tasks of a call that cannot end as completed."""
    if not state.is_live:
        return frozenset()
    if state.command != DELEGATE:
        return frozenset({state.run} if await _is_late(runtime, state) else ())
    tasks = await unfinished(runtime, state)
    return frozenset([one.run for one in tasks if not one.is_live or await _is_late(runtime, one)])


async def is_orphaned(runtime: Runtime, run: str, before: Collection[str]) -> bool:
    """Whether all that an ended run lacks had stopped before it was taken up, and nobody asks or wanted it stopped."""
    state = await runtime.engine.get(run)
    if state is None or state.status not in ("partial", "failed"):
        return False
    tasks = await unfinished(runtime, state) if state.command == DELEGATE else [state]
    return bool(tasks) and all(one.run in before and one.status != "blocked" for one in tasks)


async def _is_late(runtime: Runtime, state: State) -> bool:
    now = runtime.services.world.now()
    return bool(seconds_late(state, now)) and not has_time_below(await runtime.journal.descendants(state.run), now)


async def finish_caller(runtime: Runtime, run: str) -> None:
    """Bring the call up to date whose last open task has completed by itself: it costs nothing, as all have ended."""
    state = await runtime.engine.get(run)
    caller = None if state is None or state.parent is None else await runtime.engine.get(state.parent)
    if caller is None or caller.command != DELEGATE or caller.is_live or caller.status == "completed":
        return
    if not await unfinished(runtime, caller):
        try:
            await runtime.engine.resume(caller.run)
        except LeaseHeld:
            # Another of its tasks has completed too, and whoever saw to that one brings it up to date.
            return
        await runtime.engine.result(caller.run)
        await runtime.engine.deliver(caller.run, "caller")


async def _asking(runtime: Runtime, state: State) -> list[State]:
    """Whoever waits for a person's words: the run itself and those below it, or the tasks of a call that ended."""
    if state.is_live:
        # An answer may lie ready that was given while nobody was at work on the run; looked at in the other order,
        # one that is taken in between would be missing in both.
        ready = set(await runtime.journal.addressed())
        now = await runtime.engine.get(state.run) or state
        every = (now, *await runtime.journal.descendants(state.run))
        return [one for one in every if any((one.run, topic) not in ready for topic in one.waits.values())]
    tasks = await unfinished(runtime, state) if state.command == DELEGATE else [state]
    return [one for one in tasks if one.status == "blocked"]


async def _addressed(runtime: Runtime, state: State, answer: Answer) -> dict[str, str]:
    """Whom the answers are for, by session id; one without an address is for the only one who asks."""
    asking = await _asking(runtime, state)
    if isinstance(answer, Mapping):
        _check_addresses(state, asking, answer)
        return dict(answer)
    if answer is None:
        # Where somebody can be asked, whoever waits asks again by itself.
        if asking and not (state.is_live and runtime.services.can_ask):
            raise _unanswered(state, asking)
        return {}
    if len(asking) > 1:
        raise _unanswered(state, asking)
    if asking:
        return {asking[0].run: answer}
    if state.is_live:
        await ensure_not_running(runtime, state.run)
        raise UsageError(
            "answer", answer, "it was interrupted and asks nothing; go on with it first, without an answer"
        )
    if state.command != DELEGATE:
        return {state.run: answer}
    tasks = await unfinished(runtime, state)
    if not tasks:
        raise UsageError("ID", state.run, "all its tasks completed; say more to one of them by its own id")
    return {one.run: answer for one in tasks}


def _check_not_empty(answer: Answer) -> None:
    for given in answer.values() if isinstance(answer, Mapping) else [answer]:
        if given is not None and not given.strip():
            raise UsageError("answer", given, "an answer has at least a word")


def _check_addresses(state: State, asking: Sequence[State], answers: Mapping[str, str]) -> None:
    known = [one.run for one in asking]
    strangers = [run for run in answers if run not in known]
    if strangers:
        raise UsageError("answer", strangers[0], f"answer who asks: {', '.join(known) or 'nobody does'}")
    left = [one for one in asking if one.run not in answers]
    if left:
        raise _unanswered(state, left)


def _unanswered(state: State, asking: Sequence[State]) -> UsageError:
    """Say who asks what, and how each is answered."""
    if [one.run for one in asking] == [state.run] and APPROVAL in state.waits.values():
        approve = f"`deputy approve {state.run}`, or `deputy approve {state.run} --deny`"
        return UsageError("ID", state.run, f"it waits for approval: {approve}, then resume it ({_asked(state)})")
    if [one.run for one in asking] == [state.run]:
        return UsageError("ID", state.run, f"it waits for an answer: give --answer TEXT ({_asked(state)})")
    text = "; ".join(f"[{one.label}] asks: {_asked(one)} — {_how_to_answer(one)}" for one in asking)
    return UsageError("ID", state.run, f"answer first who waits for it. {text}")


def _how_to_answer(state: State) -> str:
    is_approval = APPROVAL in state.waits.values()
    return f"deputy approve {state.run}" if is_approval else f'deputy resume {state.run} --answer "…"'


def _asked(state: State) -> str:
    flat = " ".join(state.question[: _SHOWN * 4].split())
    return shortened(flat, _SHOWN) or "see `deputy show`"


async def _revive(runtime: Runtime, state: State, answers: Mapping[str, str]) -> None:
    """Go on with a run that its process left, and give those who wait their answers."""
    found = {run: await runtime.engine.get(run) for run in answers}
    waiting = [one for one in found.values() if one is not None and one.waits]
    # All are looked at before the first is sent.
    messages = [_message(one, answers[one.run]) for one in waiting]
    counts = {
        run for run, topic, key, body in messages if await runtime.engine.send(run, topic, body, key=answer_key(key))
    }
    # Each of them asked when its answer was given: one that waits no more has taken another, or has ended.
    late = [(run, answer) for run, answer in answers.items() if run not in counts]
    if late and not counts:
        raise _too_late(*late[0], found[late[0][0]])
    # What counts is acted on, also where somebody else was answered before.
    is_taken_up = await runtime.engine.ensure_running(state.run) or runtime.engine.has(state.run)
    after = await runtime.engine.get(state.run)
    if not is_taken_up and not answers and after is not None and after.is_live:
        raise _at_work(state.run)
    if late:
        raise _too_late(*late[0], found[late[0][0]])


def _too_late(run: str, answer: str, state: State | None) -> UsageError:
    if state is None or not state.is_live:
        return UsageError("answer", answer, f"{run} has ended meanwhile; see how with `deputy show {run}`")
    return UsageError("answer", answer, f"another answer to {run} came first; go on without one")


def _at_work(run: str) -> UsageError:
    return UsageError("ID", run, "another process is at work on it; follow it with `deputy watch`")


def _message(state: State, answer: str) -> tuple[str, str, str, str]:
    """An answer as it is sent to who waits for it: to whom, about what, under which key, and what it says."""
    key, topic = next(iter(state.waits.items()))
    if topic == APPROVAL:
        way = f"`deputy approve {state.run}` shows it and takes the answer"
        raise UsageError("answer", answer, f"{state.run} waits for approval, which no text answers: {way}")
    return state.run, topic, key, answer
