"""Soft limits: when one is reached, the subagent gets a final turn to report what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from deputy.core.conversation import Conversation, ToolMessage, ToolResult, UserMessage
from deputy.core.events import FinalTurnBegun, ModelCallBegun
from deputy.core.limits import (
    FINAL_TURN_OUTPUT_TOKENS,
    Amount,
    Part,
    budget_is_spent,
    budget_limit,
    context_is_full,
    context_limit,
    final_turn_message,
    fit_for_final_turn,
    priced,
    time_is_nearly_up,
    time_is_up,
)
from deputy.engine.budget import amount
from deputy.engine.history import CHARACTERS_PER_TOKEN, raw
from deputy.engine.prompts import prompt
from deputy.engine.turn import TurnInput, call_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.core.conversation import Message
    from deputy.core.errors import Error
    from deputy.core.limits import BudgetUse, LimitLevel
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.history import History
    from deputy.engine.ports import RunContext

_DROPPED = "[This result was dropped to make room for your report.]"
_CLEARLY_BELOW = 0.6
"""Factor for the retry after the provider refused the context, because its token count differs from ours."""


def reached_limit(run: RunContext, history: History, agent: AgentContext) -> Error | None:
    """The limit that requires the final turn now; None if there is none."""
    soft = agent.soft_deadline(run)
    if soft is not None and run.now() >= soft:
        return time_is_nearly_up(agent.seconds)
    output = agent.settings.max_output_tokens or FINAL_TURN_OUTPUT_TOKENS
    window = min(_windows(history, agent), default=None)
    if window is not None and context_limit(window, output).level(history.tokens) in ("final_turn", "stop"):
        return context_is_full(window)
    for use, level in _limit_levels(history, agent):
        if history.turn and level in ("final_turn", "stop"):
            return budget_is_spent(use.resource, use.cap)
    return None


def _windows(history: History, agent: AgentContext) -> list[int]:
    return [window for window in (agent.window, history.window) if window is not None]


def budget_warning(history: History, agent: AgentContext) -> str:
    """A warning for the subagent, given once, when most of a budget is used; else empty."""
    warned = [use for use, level in _limit_levels(history, agent) if level == "warned"]
    if history.is_warned or not warned:
        return ""
    history.is_warned = True
    shares = " and ".join(f"{priced(use.resource, use.used)} of {priced(use.resource, use.cap)}" for use in warned)
    own = amount(history.usage)
    who = "You" if all(use.used == getattr(own, use.resource) for use in warned) else "You and other subagents"
    return f"{who} have used {shares} of your budget: finish what matters most, and report."


def _limit_levels(history: History, agent: AgentContext) -> Iterator[tuple[BudgetUse, LimitLevel]]:
    """The level of each budget of the run and its tree; the final turn must still fit in.

    Uses the sums recorded by the last model call, which are the same on replay; those of the ledger are not.
    """
    if not history.budgets:
        return
    output = max(agent.settings.max_output_tokens or 0, FINAL_TURN_OUTPUT_TOKENS)
    # The conversation is sent twice: in the turn before the final one, and in the final one.
    given = 2 * history.tokens
    last = Amount(tokens=given + output, requests=1, cost=agent.max_cost(given, output))
    for use in history.budgets:
        needed: float | None = getattr(last, use.resource)
        # Without a known price no call is made under a cost cap, and a final turn spawns no children.
        if needed:
            yield use, budget_limit(use.cap, needed).level(use.used)


async def run_final_turn(
    run: RunContext, history: History, agent: AgentContext, why: Error, *, is_full: bool = False
) -> tuple[str, Error]:
    """Run the final turn, in which no tool can be called; its text, or the last text before it, and the limit.

    `is_full` means that the provider refused the context, whatever window we assume.
    """
    await run.record(f"final_turn:{history.turn}", FinalTurnBegun(limit=why.type, reason=why.message))
    words = prompt("final_turn").format(reason=final_turn_message(why))
    call = f"{run.run}:final_turn:{history.turn}"
    await agent.ledger.refresh()
    last = fitted(history, agent, words, is_full=is_full)
    turn = TurnInput(
        agent=agent,
        conversation=last.conversation,
        # The same tools as before, so that the provider's cache of the conversation is used.
        toolset=agent.toolset(),
        settings=structs.replace(
            agent.settings, max_output_tokens=last.output, tool_choice="none", idempotency_key=call
        ),
        tokens=last.tokens,
        estimate=last.estimate,
        seconds=agent.final_turn_seconds(run),
    )
    begun = ModelCallBegun(model=agent.model.name, call=call)
    ended = await run.step(f"final_turn:{history.turn}:model", call_model, turn, begun=begun)
    history.append_reply(ended)
    agent.emit_tokens(history.usage)
    is_late = why.type == "timeout" and ended.error is not None and ended.error.type == "timeout"
    return history.text, time_is_up(agent.seconds) if is_late else why


class FinalTurn(NamedTuple):
    """The conversation of the final turn and its output limit."""

    conversation: Conversation
    tokens: int
    estimate: int
    output: int


def fitted(history: History, agent: AgentContext, words: str, *, is_full: bool) -> FinalTurn:
    """The conversation plus the final prompt, with the oldest tool results dropped until it fits."""
    messages = history.conversation.messages
    parts = [_part(message, first=index == 0) for index, message in enumerate(messages)]
    fixed = agent.overhead() + (len(history.conversation.system) + len(words)) // CHARACTERS_PER_TOKEN
    guessed = fixed + sum(part.tokens for part in parts)
    # Scale our estimate to the provider's last count.
    stretch = max(1.0, history.tokens / max(1, guessed))
    room = _room(history, agent, is_full=is_full)
    dropped: frozenset[int] = frozenset()
    output = FINAL_TURN_OUTPUT_TOKENS
    if room is not None:
        reserve = min(FINAL_TURN_OUTPUT_TOKENS, room // 4)
        dropped = frozenset(fit_for_final_turn(parts, int((room - reserve) / stretch) - fixed))
        guessed -= sum(parts[index].tokens for index in dropped)
        output = max(1, reserve, min(FINAL_TURN_OUTPUT_TOKENS, room - int(guessed * stretch)))
    fitting = (_without_results(message) if index in dropped else message for index, message in enumerate(messages))
    conversation = Conversation(history.conversation.system, (*fitting, UserMessage(text=words)))
    return FinalTurn(conversation, int(guessed * stretch), guessed, output)


def _room(history: History, agent: AgentContext, *, is_full: bool) -> int | None:
    """The tokens available for the final turn; None if unbounded."""
    rooms = _windows(history, agent)
    if is_full:
        rooms = [int(min([*rooms, history.tokens]) * _CLEARLY_BELOW)]
    left = agent.ledger.remaining("tokens")
    return min((*rooms, *(() if left is None else (max(0, int(left)),))), default=None)


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
