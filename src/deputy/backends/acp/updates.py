"""What an agent tells of its turn, in the protocol's words, taken into ours."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

from deputy.backends import problems
from deputy.backends.acp.permission import Wish, wish_of
from deputy.backends.cli.program import Fields, Order, billionths, number_of, part, parts, text_of
from deputy.core.conversation import Used
from deputy.core.errors import ContextExhausted, Refused
from deputy.core.outcome import Usage
from deputy.engine.ports.backend import ContextFill

if TYPE_CHECKING:
    from deputy.backends.told import Told
    from deputy.core.errors import Error

FULL: Final = 0.95
"""From here on a context counts as full."""
_NOTICE_LENGTH = 500
_CALLS = 2000
"""So many tool calls are told apart; later ones are judged by each message alone."""


class Calls:
    """What is known of the tool calls of a turn."""

    def __init__(self) -> None:
        self._wishes: dict[str, Wish] = {}

    def learn(self, call: Fields) -> Wish:
        """What a call is about, with what this message adds."""
        name = text_of(call.get("toolCallId"))
        wish = wish_of(call, self._wishes.get(name))
        if name in self._wishes or len(self._wishes) < _CALLS:
            self._wishes[name] = wish
        return wish


def take_update(update: Fields, told: Told, order: Order, calls: Calls, notice: str = "") -> None:
    """Take one update in; what begins like a notice is not said to whoever asked."""
    match update.get("sessionUpdate"):
        case "agent_message_chunk" if not _is_from_below(update):
            text = text_of(part(update, "content").get("text"))
            if notice and text.startswith(notice):
                _notice(text.removeprefix(notice), told)
            else:
                told.says(text, text_of(update.get("messageId")))
            _count(part(update, "_meta", "usage"), told)
        case "agent_message_chunk" | "agent_thought_chunk" | "plan":
            told.stirs()
        case "tool_call" | "tool_call_update":
            take_call(update, told, order, calls)
        case "usage_update":
            _weigh(update, told)
        case _:
            return


def take_call(call: Fields, told: Told, order: Order, calls: Calls) -> Wish:
    """A tool is used, or is about to be, or was."""
    name, wish = text_of(call.get("toolCallId")), calls.learn(call)
    writes = order.may_write and wish.writes
    given = part(call, "rawInput") or {"title": text_of(call.get("title"))}
    told.calls(name, wish.kind, given, may_write=writes)
    if writes:
        told.may_write(name)
    status = call.get("status")
    if status in ("completed", "failed"):
        if status == "completed" and wish.kind in ("edit", "delete", "move"):
            for path in wish.paths:
                told.changes(full_path(order, path))
        told.gets(name, _output(call), is_error=status == "failed")
    return wish


def full_path(order: Order, path: str) -> str:
    """A path as agents name it, in one spelling."""
    return posixpath.normpath(posixpath.join(order.place, path))


def take_end(result: Fields, told: Told, name: str) -> None:
    """The turn is at its end, for a reason that the agent gives."""
    _settle(result, told)
    match result.get("stopReason"):
        case "end_turn":
            if not told.text.strip() and _is_full(told):
                told.error = _exhausted(name, told)
        case "max_tokens" | "max_turn_requests" as reason:
            told.error = _exhausted(name, told) if _is_full(told) else problems.output_limit(name, reason)
        case "refusal":
            told.error = Refused(f"{name} will not do it").as_value()
        case "cancelled":
            told.error = problems.crashed(name, "cancelled its turn", "")
        case other:
            told.error = problems.not_json(name, f"it stopped because of {other!r:.100}")
    told.finishes()


def _exhausted(name: str, told: Told) -> Error:
    filled = told.context
    words = "" if filled is None else f" ({filled.used:,} of {filled.size:,} tokens)"
    return ContextExhausted(f"{name}'s context is full{words}").as_value()


def _is_full(told: Told) -> bool:
    return told.context is not None and told.context.used >= FULL * told.context.size


def _weigh(update: Fields, told: Told) -> None:
    used, size = number_of(update.get("used")), number_of(update.get("size"))
    if size:
        told.context = ContextFill(used=used, size=size)
    cost = part(update, "cost")
    # A price that an agent does not know is 0 there.
    amount = billionths(cost.get("amount")) if cost.get("currency") == "USD" else None
    if amount:
        told.counted = Usage(cost=amount)
    told.stirs()


def _notice(text: str, told: Told) -> None:
    if "retrying" in text.lower():
        told.retries(text[:_NOTICE_LENGTH])
    else:
        told.stirs()


def _count(usage: Fields, told: Told) -> None:
    """What one request took, as one of them tells beside its words; the end says nothing of it then."""
    if usage:
        told.uses(
            Used(
                input_tokens=number_of(usage.get("inputTokens")),
                output_tokens=number_of(usage.get("outputTokens")),
                cached_tokens=number_of(usage.get("cachedReadTokens")),
            )
        )


def _settle(result: Fields, told: Told) -> None:
    """What the turn took. Costs are told over the whole session, tokens of the turn."""
    usage, quota = part(result, "usage"), part(result, "_meta", "quota", "token_count")
    if not usage and not quota and told.usage.requests:
        return
    output = number_of(usage.get("outputTokens"))
    cached, written = number_of(usage.get("cachedReadTokens")), number_of(usage.get("cachedWriteTokens"))
    given = number_of(usage.get("inputTokens"))
    # Some count what was cached into the input and some beside it; their total says which.
    if number_of(usage.get("totalTokens")) >= given + output + cached + written:
        given += cached + written
    if not usage:
        given, output = number_of(quota.get("input_tokens")), number_of(quota.get("output_tokens"))
    cost = (told.counted.cost or 0) - (told.before.cost or 0)
    told.settles(Usage(input=given, output=output, cached=cached, cost=cost if cost > 0 else None))


def _output(call: Fields) -> str:
    texts = [text_of(part(piece, "content").get("text")) for piece in parts(call.get("content"))]
    return "\n".join(text for text in texts if text) or text_of(call.get("rawOutput"))


def _is_from_below(update: Fields) -> bool:
    """Whether an agent of the agent's own says it."""
    return isinstance(part(update, "_meta", "claudeCode").get("parentToolUseId"), str)
