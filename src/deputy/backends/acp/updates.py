"""Record the session updates of an ACP agent."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

from deputy.backends import program_errors
from deputy.backends.acp.permission import PermissionRequest, permission_of
from deputy.backends.cli.program import Fields, Invocation, billionths, number_of, part, parts, text_of
from deputy.core.conversation import TokenUsage
from deputy.core.errors import ContextExhausted, ModelRefused
from deputy.core.outcome import Usage
from deputy.engine.ports.backend import ContextFill

if TYPE_CHECKING:
    from deputy.backends.turn_recorder import TurnRecorder
    from deputy.core.errors import Error

FULL: Final = 0.95
"""The share of the context window from which a context counts as full."""
_NOTICE_LENGTH = 500
_CALLS = 2000
"""The most tool calls to remember; a later call is judged by each message alone."""


class ToolCallLog:
    """The tool calls of a turn, merged over their messages."""

    def __init__(self) -> None:
        self._permissions: dict[str, PermissionRequest] = {}

    def learn(self, call: Fields) -> PermissionRequest:
        """Merge a message into its tool call."""
        name = text_of(call.get("toolCallId"))
        permission = permission_of(call, self._permissions.get(name))
        if name in self._permissions or len(self._permissions) < _CALLS:
            self._permissions[name] = permission
        return permission


def record_update(
    update: Fields, recorder: TurnRecorder, invocation: Invocation, calls: ToolCallLog, notice: str = ""
) -> None:
    """Record one update; text that begins with `notice` is not part of the answer."""
    match update.get("sessionUpdate"):
        case "agent_message_chunk" if not _is_from_below(update):
            text = text_of(part(update, "content").get("text"))
            if notice and text.startswith(notice):
                _notice(text.removeprefix(notice), recorder)
            else:
                recorder.add_text(text, text_of(update.get("messageId")))
            _count(part(update, "_meta", "usage"), recorder)
        case "agent_message_chunk" | "agent_thought_chunk" | "plan":
            recorder.mark_active()
        case "tool_call" | "tool_call_update":
            record_call(update, recorder, invocation, calls)
        case "usage_update":
            _weigh(update, recorder)
        case _:
            return


def record_call(call: Fields, recorder: TurnRecorder, invocation: Invocation, calls: ToolCallLog) -> PermissionRequest:
    """Record the start, progress or end of a tool call."""
    name, permission = text_of(call.get("toolCallId")), calls.learn(call)
    writes = invocation.may_write and permission.writes
    given = part(call, "rawInput") or {"title": text_of(call.get("title"))}
    recorder.calls(name, permission.kind, given, may_write=writes)
    if writes:
        recorder.may_write(name)
    status = call.get("status")
    if status in ("completed", "failed"):
        if status == "completed" and permission.kind in ("edit", "delete", "move"):
            for path in permission.paths:
                recorder.changes(full_path(invocation, path))
        recorder.gets(name, _output(call), is_error=status == "failed")
    return permission


def full_path(invocation: Invocation, path: str) -> str:
    """The absolute path of an agent's path."""
    return posixpath.normpath(posixpath.join(invocation.place, path))


def record_end(result: Fields, recorder: TurnRecorder, name: str) -> None:
    """Record the end of the turn and its stop reason."""
    _apply_usage(result, recorder)
    match result.get("stopReason"):
        case "end_turn":
            if not recorder.text.strip() and _is_full(recorder):
                recorder.error = _exhausted(name, recorder)
        case "max_tokens" | "max_turn_requests" as reason:
            recorder.error = (
                _exhausted(name, recorder) if _is_full(recorder) else program_errors.output_limit(name, reason)
            )
        case "refusal":
            recorder.error = ModelRefused(f"{name} refused the task").as_value()
        case "cancelled":
            recorder.error = program_errors.crashed(name, "cancelled its turn", "")
        case other:
            recorder.error = program_errors.not_json(name, f"unknown stop reason {other!r:.100}")
    recorder.finishes()


def _exhausted(name: str, recorder: TurnRecorder) -> Error:
    filled = recorder.context
    words = "" if filled is None else f" ({filled.used:,} of {filled.size:,} tokens)"
    return ContextExhausted(f"{name}'s context is full{words}").as_value()


def _is_full(recorder: TurnRecorder) -> bool:
    return recorder.context is not None and recorder.context.used >= FULL * recorder.context.size


def _weigh(update: Fields, recorder: TurnRecorder) -> None:
    used, size = number_of(update.get("used")), number_of(update.get("size"))
    if size:
        recorder.context = ContextFill(used=used, size=size)
    cost = part(update, "cost")
    # An unknown price is reported as 0.
    amount = billionths(cost.get("amount")) if cost.get("currency") == "USD" else None
    if amount:
        recorder.counted = Usage(cost=amount)
    recorder.mark_active()


def _notice(text: str, recorder: TurnRecorder) -> None:
    if "retrying" in text.lower():
        recorder.retries(text[:_NOTICE_LENGTH])
    else:
        recorder.mark_active()


def _count(usage: Fields, recorder: TurnRecorder) -> None:
    """Add the usage of one request: one agent reports it with its text instead of at the end."""
    if usage:
        recorder.uses(
            TokenUsage(
                input_tokens=number_of(usage.get("inputTokens")),
                output_tokens=number_of(usage.get("outputTokens")),
                cached_tokens=number_of(usage.get("cachedReadTokens")),
            )
        )


def _apply_usage(result: Fields, recorder: TurnRecorder) -> None:
    """Set the usage of the turn: costs are reported for the whole session, tokens for the turn."""
    usage, quota = part(result, "usage"), part(result, "_meta", "quota", "token_count")
    if not usage and not quota and recorder.usage.requests:
        return
    output = number_of(usage.get("outputTokens"))
    cached, written = number_of(usage.get("cachedReadTokens")), number_of(usage.get("cachedWriteTokens"))
    given = number_of(usage.get("inputTokens"))
    # Some agents include cached tokens in the input, others do not; the total shows which.
    if number_of(usage.get("totalTokens")) >= given + output + cached + written:
        given += cached + written
    if not usage:
        given, output = number_of(quota.get("input_tokens")), number_of(quota.get("output_tokens"))
    cost = (recorder.counted.cost or 0) - (recorder.before.cost or 0)
    recorder.set_total(Usage(input=given, output=output, cached=cached, cost=cost if cost > 0 else None))


def _output(call: Fields) -> str:
    texts = [text_of(part(piece, "content").get("text")) for piece in parts(call.get("content"))]
    return "\n".join(text for text in texts if text) or text_of(call.get("rawOutput"))


def _is_from_below(update: Fields) -> bool:
    """Whether a subagent of the agent wrote it."""
    return isinstance(part(update, "_meta", "claudeCode").get("parentToolUseId"), str)
