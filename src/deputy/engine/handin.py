"""Soft limits: when one is reached, the subagent gets one last turn to hand in what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from deputy.core.conversation import Conversation, ToolMessage, ToolResult, Toolset
from deputy.core.events import HandedIn, Lost, ModelCallBegun
from deputy.core.limits import HANDIN_OUTPUT_TOKENS, HANDIN_SECONDS, Part, budget_limit, context_limit, fit_for_handin
from deputy.engine.prompts import prompt
from deputy.engine.reached import budget_is_spent, context_is_full, time_is_up, told_to_hand_in
from deputy.engine.talk import CHARACTERS_PER_TOKEN, Talk
from deputy.engine.turn import TurnArgs, TurnView, call_model

if TYPE_CHECKING:
    from deputy.core.conversation import Message
    from deputy.core.errors import Error
    from deputy.engine.desk import Desk
    from deputy.engine.ports import RunContext

_DROPPED = "[This result was dropped to make room for your report.]"


def pressing(run: RunContext, talk: Talk, desk: Desk) -> Error | None:
    """The limit that calls for the last turn now, if one does."""
    soft = desk.soft_deadline(run)
    if soft is not None and run.now() >= soft:
        return time_is_up(desk.seconds)
    output = desk.settings.max_output_tokens or HANDIN_OUTPUT_TOKENS
    if desk.window is not None and context_limit(desk.window, output).standing(talk.tokens) in ("handin", "stop"):
        return context_is_full(desk.window)
    cap = desk.purse.account.budget.tokens
    used = talk.usage.input + talk.usage.output
    if cap is not None and talk.turn and budget_limit(cap, talk.tokens + output).standing(used) in ("handin", "stop"):
        return budget_is_spent("tokens", cap)
    return None


async def hand_in(run: RunContext, talk: Talk, desk: Desk, why: Error) -> str:
    """The last turn, without tools, within its own bounds; what it says, or what was said before."""
    await run.record(f"handin:{talk.turn}", HandedIn(limit=why.type, reason=why.message))
    words = prompt("handin").format(reason=told_to_hand_in(why))
    call = f"{run.run}:handin:{talk.turn}"
    view = TurnView(
        label=desk.label,
        model=desk.model,
        conversation=fitted(talk, desk, words),
        toolset=Toolset(),
        settings=structs.replace(
            desk.settings, max_output_tokens=HANDIN_OUTPUT_TOKENS, tool_choice="auto", idempotency_key=call
        ),
        tokens=talk.tokens + len(words) // CHARACTERS_PER_TOKEN,
        purse=desk.purse,
        ceiling=desk.ceiling,
        seconds=_seconds_left(run, desk),
        limit=desk.seconds,
        emit=desk.emit,
        redactor=desk.redactor,
    )
    ended = await run.step(
        f"handin:{talk.turn}:model",
        call_model,
        TurnArgs(turn=talk.turn, model=desk.model.name),
        view=view,
        begun=ModelCallBegun(model=desk.model.name, call=call),
    )
    if isinstance(ended, Lost):
        return talk.text
    message = talk.hear(ended)
    return message.text if message is not None and message.text else talk.text


def fitted(talk: Talk, desk: Desk, words: str) -> Conversation:
    """The conversation with the oldest tool results dropped until the last turn fits, and its words said."""
    messages = talk.conversation.messages
    sizes = [_part(message, first=index == 0) for index, message in enumerate(messages)]
    room = desk.window - HANDIN_OUTPUT_TOKENS - len(words) // CHARACTERS_PER_TOKEN if desk.window else None
    dropped = set(fit_for_handin(sizes, room)) if room is not None else set[int]()
    fitted = Talk(talk.conversation.system)
    for index, message in enumerate(messages):
        fitted.conversation.append(_without_results(message) if index in dropped else message)
    fitted.say(words)
    return fitted.conversation


def _seconds_left(run: RunContext, desk: Desk) -> float:
    deadline = desk.deadline(run)
    return HANDIN_SECONDS if deadline is None else max(0.001, min(HANDIN_SECONDS, deadline - desk.clock()))


def _part(message: Message, *, first: bool) -> Part:
    match message:
        case ToolMessage(results=results):
            return Part(tokens=sum(len(one.content) for one in results) // CHARACTERS_PER_TOKEN, kind="tool_result")
        case _:
            size = sum(len(part.text) for part in getattr(message, "parts", ()) if hasattr(part, "text"))
            size += len(getattr(message, "text", "")) if not size else 0
            return Part(tokens=size // CHARACTERS_PER_TOKEN, kind="task" if first else "other")


def _without_results(message: Message) -> Message:
    if not isinstance(message, ToolMessage):
        return message
    return ToolMessage(
        results=tuple(
            ToolResult(call_id=one.call_id, name=one.name, content=_DROPPED, is_error=one.is_error)
            for one in message.results
        )
    )
