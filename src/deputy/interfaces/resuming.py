"""Going on with a run: whoever asks gets an answer, and what did not complete works again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from deputy.core.errors import UnknownRun, UsageError
from deputy.engine.root import DELEGATE
from deputy.interfaces.answering import Question
from deputy.interfaces.calls import children_of

if TYPE_CHECKING:
    from deputy.core.state import State
    from deputy.wiring import Runtime

Answer: TypeAlias = str | Mapping[str, str] | None
"""What the one who asks is told; where several ask, by their session ids."""

_YES = ("y", "yes", "true")


async def go_on(runtime: Runtime, state: State, answer: Answer) -> None:
    """Put a run to work again; a call of tasks goes on with those that did not complete."""
    answers = await _addressed(runtime, state, answer)
    if state.is_live:
        await _revive(runtime, state, answers)
        return
    for child in await unfinished(runtime, state):
        await runtime.engine.resume(child.run, answers.get(child.run))
    await runtime.engine.resume(state.run, answers.get(state.run))


async def questions(runtime: Runtime, state: State) -> tuple[Question, ...]:
    """What a run, or the tasks of a call, wait for a person to say."""
    return tuple(
        Question(
            session_id=one.run,
            label=one.label or one.command,
            topic=next(iter(one.waits.values()), "answer"),
            text=one.question,
        )
        for one in await _asking(runtime, state)
    )


async def unfinished(runtime: Runtime, state: State) -> list[State]:
    """The tasks of a call that can be gone on with: a refused one never ran, and would be refused again."""
    children = await _children(runtime, state)
    return [child for child in children if child.is_live or child.status not in ("completed", "rejected")]


async def _children(runtime: Runtime, state: State) -> list[State]:
    """The runs that the tasks of a call became, in their order."""
    children = children_of(await runtime.journal.records(state.run)) if state.command == DELEGATE else {}
    states = [await runtime.engine.get(children[index]) for index in sorted(children)]
    return [child for child in states if child is not None]


async def _asking(runtime: Runtime, state: State) -> list[State]:
    """Whoever waits for a person's words: the run itself, or the tasks of a call."""
    children = await _children(runtime, state)
    return [one for one in children or [state] if one.status in ("blocked", "waiting")]


async def _addressed(runtime: Runtime, state: State, answer: Answer) -> dict[str, str]:
    """Whom the answers are for, by session id; one without an address is for the only one who asks."""
    if answer is None:
        return {}
    asking = [one.run for one in await _asking(runtime, state)]
    if not isinstance(answer, str):
        strangers = [run for run in answer if run not in asking]
        if strangers:
            raise UsageError("answer", strangers[0], f"answer who asks: {', '.join(asking) or 'nobody does'}")
        return dict(answer)
    if len(asking) > 1:
        raise UsageError("ID", state.run, f"several of its tasks ask; answer each by its own: {', '.join(asking)}")
    if not asking and state.command == DELEGATE:
        return {child.run: answer for child in await unfinished(runtime, state)}
    return {asking[0] if asking else state.run: answer}


async def _revive(runtime: Runtime, state: State, answers: Mapping[str, str]) -> None:
    """Go on with a run that its process left, and give those who wait their answers."""
    for run, answer in answers.items():
        waiting = await runtime.engine.get(run)
        if waiting is None:
            raise UnknownRun(run)
        for topic in list(waiting.waits.values())[:1]:
            body = answer.strip().lower() in _YES if topic == "approval" else answer
            await runtime.engine.send(run, topic, body)
    if not await runtime.engine.ensure(state.run) and not answers:
        raise UsageError("ID", state.run, "another process is at work on it; follow it with `deputy watch`")
