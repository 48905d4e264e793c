"""Record the session updates of an ACP agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from deputy.backends import program_errors
from deputy.backends.cli.program import Fields, cost_of, number_of, part, parts, text_of, usage_of
from deputy.core.limits import exact
from deputy.core.model_errors import ContextExhausted, ModelRefused
from deputy.core.outcome import Usage
from deputy.engine.ports.backend import ContextFill

if TYPE_CHECKING:
    from deputy.backends.turn_recorder import TurnRecorder
    from deputy.core.errors import Error

FULL: Final = 0.95
"""The share of the context window from which a context counts as full."""
HARMLESS = frozenset({"read", "search", "think", "fetch", "switch_mode"})
"""Kinds of tools that change nothing."""
_PATHS = ("path", "file_path", "filePath", "filepath", "abs_path", "absolute_path", "dir_path", "notebook_path")
_MOST_PATHS = 100
_NOTICE_LENGTH = 500
_CALLS = 2000
"""The most tool calls to remember; a later call is judged by each message alone."""


class PermissionRequest(Struct, frozen=True, kw_only=True):
    """The kind and paths of a tool call."""

    kind: str
    paths: tuple[str, ...]

    @property
    def writes(self) -> bool:
        """Whether the call may change something."""
        return self.kind not in HARMLESS


class ToolCallLog:
    """The tool calls of a turn, merged over their messages."""

    def __init__(self) -> None:
        self._permissions: dict[str, PermissionRequest] = {}

    def learn(self, call: Fields) -> PermissionRequest:
        """Merge a message into its tool call."""
        name = text_of(call.get("toolCallId"))
        permission = _permission_of(call, self._permissions.get(name))
        if name in self._permissions or len(self._permissions) < _CALLS:
            self._permissions[name] = permission
        return permission


def _permission_of(call: Fields, known: PermissionRequest | None = None) -> PermissionRequest:
    """The permission that a tool call needs, merged with earlier messages about the call."""
    kind = call.get("kind")
    paths = tuple(dict.fromkeys((*(known.paths if known else ()), *_paths_of(call))))
    return PermissionRequest(
        kind=kind if isinstance(kind, str) else known.kind if known else "other", paths=paths[:_MOST_PATHS]
    )


def _paths_of(call: Fields) -> list[str]:
    places = [text_of(place.get("path")) for place in parts(call.get("locations"))]
    differences = [text_of(piece.get("path")) for piece in parts(call.get("content")) if piece.get("type") == "diff"]
    given = part(call, "rawInput")
    named: list[Any] = [given.get(name) for name in _PATHS]
    return [path for path in (*places, *differences, *named) if isinstance(path, str) and path]


def record_update(update: Fields, recorder: TurnRecorder, calls: ToolCallLog, notice: str = "") -> None:
    """Record one update; text that begins with `notice` is not part of the answer."""
    match update.get("sessionUpdate"):
        case "agent_message_chunk" if not _is_from_subagent(update):
            text = text_of(part(update, "content").get("text"))
            if not notice or not text.startswith(notice):
                recorder.add_text(text, text_of(update.get("messageId")))
            elif "retrying" in text.lower():
                recorder.retries(text.removeprefix(notice)[:_NOTICE_LENGTH])
            else:
                recorder.mark_active()
            # One agent reports the usage of a request with its text instead of at the end.
            if usage := part(update, "_meta", "usage"):
                recorder.uses(usage_of(usage, "inputTokens", "outputTokens", "cachedReadTokens"))
        case "agent_message_chunk" | "agent_thought_chunk" | "plan":
            recorder.mark_active()
        case "tool_call" | "tool_call_update":
            record_call(update, recorder, calls)
        case "usage_update":
            _weigh(update, recorder)
        case _:
            return


def record_call(call: Fields, recorder: TurnRecorder, calls: ToolCallLog) -> PermissionRequest:
    """Record the start, progress or end of a tool call."""
    name, permission = text_of(call.get("toolCallId")), calls.learn(call)
    given = part(call, "rawInput") or {"title": text_of(call.get("title"))}
    recorder.calls(name, permission.kind, given, may_write=permission.writes)
    if permission.writes:
        recorder.may_write(name)
    status = call.get("status")
    if status in ("completed", "failed"):
        if status == "completed" and permission.kind in ("edit", "delete", "move"):
            for path in permission.paths:
                recorder.changes(path)
        recorder.gets(name, _output(call), is_error=status == "failed")
    return permission


def record_end(result: Fields, recorder: TurnRecorder) -> None:
    """Record the end of the turn and its stop reason."""
    name = recorder.invocation.program.name
    _apply_usage(result, recorder)
    match result.get("stopReason"):
        case "end_turn":
            if not recorder.text.strip() and _is_full(recorder):
                recorder.error = _exhausted(name, recorder)
        case "max_tokens" | "max_turn_requests" as reason:
            limit = program_errors.output_limit(name, reason)
            recorder.error = _exhausted(name, recorder) if _is_full(recorder) else limit
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
    amount = cost_of(cost.get("amount")) if cost.get("currency") == "USD" else None
    if amount:
        recorder.counted = Usage(cost=amount)
    recorder.mark_active()


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
    cost = exact((recorder.counted.cost or 0) - (recorder.before.cost or 0))
    recorder.set_total(Usage(input=given, output=output, cached=cached, cost=cost if cost > 0 else None))


def _output(call: Fields) -> str:
    texts = [text_of(part(piece, "content").get("text")) for piece in parts(call.get("content"))]
    return "\n".join(text for text in texts if text) or text_of(call.get("rawOutput"))


def _is_from_subagent(update: Fields) -> bool:
    return isinstance(part(update, "_meta", "claudeCode").get("parentToolUseId"), str)
