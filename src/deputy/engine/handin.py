"""Soft limits: when one is reached, the subagent gets one last turn to hand in what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from deputy.core.conversation import Conversation, ToolMessage, ToolResult, Toolset, UserMessage
from deputy.core.events import HandedIn, Lost, ModelCallBegun
from deputy.core.limits import (
    HANDIN_OUTPUT_TOKENS,
    HANDIN_SECONDS,
    Amount,
    Part,
    budget_limit,
    context_limit,
    fit_for_handin,
)
from deputy.engine.prompts import prompt
from deputy.engine.purse import amount
from deputy.engine.reached import budget_is_spent, context_is_full, priced, time_is_up, told_to_hand_in
from deputy.engine.talk import CHARACTERS_PER_TOKEN, raw
from deputy.engine.turn import TurnArgs, TurnView, call_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.core.conversation import Message
    from deputy.core.errors import Error
    from deputy.core.limits import Standing, Use
    from deputy.engine.desk import Desk
    from deputy.engine.ports import RunContext
    from deputy.engine.talk import Talk

_DROPPED = "[This result was dropped to make room for your report.]"
_CLEARLY_BELOW = 0.6
"""How much of what was too much is tried next: our counts and the provider's differ."""


def pressing(run: RunContext, talk: Talk, desk: Desk) -> Error | None:
    """The limit that calls for the last turn now, if one does."""
    soft = desk.soft_deadline(run)
    if soft is not None and run.now() >= soft:
        return time_is_up(desk.seconds)
    output = desk.settings.max_output_tokens or HANDIN_OUTPUT_TOKENS
    window = min(_windows(talk, desk), default=None)
    if window is not None and context_limit(window, output).standing(talk.tokens) in ("handin", "stop"):
        return context_is_full(window)
    for use, standing in _standings(talk, desk):
        if talk.turn and standing in ("handin", "stop"):
            return budget_is_spent(use.resource, use.cap)
    return None


def _windows(talk: Talk, desk: Desk) -> list[int]:
    """How much the model can hold, as far as anybody said so."""
    return [window for window in (desk.window, talk.window) if window is not None]


def budget_warning(talk: Talk, desk: Desk) -> str:
    """What the subagent is told, once, when most of a budget is used; nothing before and after."""
    warned = [use for use, standing in _standings(talk, desk) if standing == "warned"]
    if talk.is_warned or not warned:
        return ""
    talk.is_warned = True
    shares = " and ".join(f"{priced(use.resource, use.used)} of {priced(use.resource, use.cap)}" for use in warned)
    own = amount(talk.usage)
    who = "You" if all(use.used == getattr(own, use.resource) for use in warned) else "You and others who draw on it"
    return f"{who} have used {shares} of your budget: finish what matters most, and report."


def _standings(talk: Talk, desk: Desk) -> Iterator[tuple[Use, Standing]]:
    """Where each budget stands, its own and those of the tree, of which the last turn must still be paid.

    The sums are those that the last model call recorded: they are the same when the run is replayed, which a purse's
    are not.
    """
    if not talk.budgets:
        return
    output = max(desk.settings.max_output_tokens or 0, HANDIN_OUTPUT_TOKENS)
    # The conversation is paid for twice: in the turn that may come before the last one, and in the last one.
    given = 2 * talk.tokens
    last = Amount(tokens=given + output, requests=1, cost=desk.ceiling(given, output))
    for use in talk.budgets:
        needed: int | None = getattr(last, use.resource)
        # Where no price is known, no call is made under a cap on cost; and children are not what a last turn needs.
        if needed:
            yield use, budget_limit(use.cap, needed).standing(use.used)


async def hand_in(run: RunContext, talk: Talk, desk: Desk, why: Error, *, is_full: bool = False) -> str:
    """The last turn, without tools, within its own bounds; what it says, or what was said before.

    `is_full` says that the provider refused the conversation as it is, whatever we believe its window to be.
    """
    await run.record(f"final_turn:{talk.turn}", HandedIn(limit=why.type, reason=why.message))
    words = prompt("handin").format(reason=told_to_hand_in(why))
    call = f"{run.run}:final_turn:{talk.turn}"
    last = fitted(talk, desk, words, is_full=is_full)
    view = TurnView(
        label=desk.label,
        model=desk.model,
        conversation=last.conversation,
        toolset=Toolset(),
        settings=structs.replace(
            desk.settings, max_output_tokens=last.output, tool_choice="auto", idempotency_key=call
        ),
        tokens=last.tokens,
        estimate=last.estimate,
        purse=desk.purse,
        ceiling=desk.ceiling,
        seconds=_seconds_left(run, desk),
        limit=desk.seconds,
        emit=desk.emit,
        redactor=desk.redactor,
    )
    ended = await run.step(
        f"final_turn:{talk.turn}:model",
        call_model,
        TurnArgs(turn=talk.turn, model=desk.model.name),
        view=view,
        begun=ModelCallBegun(model=desk.model.name, call=call),
    )
    if isinstance(ended, Lost):
        return talk.text
    message = talk.hear(ended)
    desk.tell_tokens(talk.usage)
    return message.text if message is not None and message.text else talk.text


class LastTurn(NamedTuple):
    """What the last turn is asked with: a conversation of about so many tokens, and room for the answer."""

    conversation: Conversation
    tokens: int
    estimate: int
    """The same by our own count alone."""
    output: int


def fitted(talk: Talk, desk: Desk, words: str, *, is_full: bool) -> LastTurn:
    """The conversation with the oldest tool results dropped until the last turn fits, and its words said."""
    messages = talk.conversation.messages
    parts = [_part(message, first=index == 0) for index, message in enumerate(messages)]
    fixed = desk.overhead() + (len(talk.conversation.system) + len(words)) // CHARACTERS_PER_TOKEN
    guessed = fixed + sum(part.tokens for part in parts)
    # The provider counts and we guess: what we guess is stretched to what it last counted.
    stretch = max(1.0, talk.tokens / max(1, guessed))
    room = _room(talk, desk, is_full=is_full)
    dropped: frozenset[int] = frozenset()
    output = HANDIN_OUTPUT_TOKENS
    if room is not None:
        reserve = min(HANDIN_OUTPUT_TOKENS, room // 4)
        dropped = frozenset(fit_for_handin(parts, int((room - reserve) / stretch) - fixed))
        guessed -= sum(parts[index].tokens for index in dropped)
        output = max(1, reserve, min(HANDIN_OUTPUT_TOKENS, room - int(guessed * stretch)))
    fitting = (_without_results(message) if index in dropped else message for index, message in enumerate(messages))
    conversation = Conversation(talk.conversation.system, (*fitting, UserMessage(text=words)))
    return LastTurn(conversation, int(guessed * stretch), guessed, output)


def _room(talk: Talk, desk: Desk, *, is_full: bool) -> int | None:
    """How many tokens the last turn may have in all; None where nothing is known to bound it."""
    rooms = _windows(talk, desk)
    if is_full:
        rooms = [int(min([*rooms, talk.tokens]) * _CLEARLY_BELOW)]
    left = desk.purse.left("tokens")
    return min((*rooms, *(() if left is None else (max(0, left),))), default=None)


def _seconds_left(run: RunContext, desk: Desk) -> float:
    deadline = desk.deadline(run)
    return HANDIN_SECONDS if deadline is None else max(0.001, min(HANDIN_SECONDS, deadline - desk.clock()))


def _part(message: Message, *, first: bool) -> Part:
    match message:
        case ToolMessage(results=results):
            return Part(tokens=sum(len(one.content) for one in results) // CHARACTERS_PER_TOKEN, kind="tool_result")
        case _:
            return Part(tokens=len(raw(message)) // CHARACTERS_PER_TOKEN, kind="task" if first else "other")


def _without_results(message: Message) -> Message:
    if not isinstance(message, ToolMessage):
        return message
    return ToolMessage(
        results=tuple(
            ToolResult(call_id=one.call_id, name=one.name, content=_DROPPED, is_error=one.is_error)
            for one in message.results
        )
    )
