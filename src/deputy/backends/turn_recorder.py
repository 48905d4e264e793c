"""Records one turn of another agent's program: its text, tool calls and usage, within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, json, structs

from deputy.core.conversation import RetryNotice, TextDelta, TokenUsage, ToolCall
from deputy.core.outcome import NO_USAGE, Usage
from deputy.engine.ports.backend import ContextFill, ToolUse
from deputy.processes.bounded_output import HeadAndTail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deputy.backends.cli.program import Invocation
    from deputy.core.errors import Error
    from deputy.engine.ports.backend import Emit

TEXT_BYTES = 200_000
_TOOLS = 500
_WARNINGS = 20
_ARGUMENT_LENGTH = 2000
_RESULT_LENGTH = 1000


class ReportedFailure(Struct, frozen=True, kw_only=True):
    """A failure as the program or its provider reported it."""

    message: str
    status: int | None = None
    """The provider's HTTP status, if known."""


class TurnRecorder:
    """One turn, event by event; progress moves `active_at`."""

    def __init__(self, invocation: Invocation, emit: Emit, clock: Callable[[], float]) -> None:
        resume = invocation.request.resume
        self.invocation = invocation
        self.before = NO_USAGE if resume is None else resume.counted
        """Usage before this turn, for a program that counts over its whole session."""
        self.session = ""
        self.can_resume = invocation.program.has_sessions
        self.model = ""
        self.counted: Usage = NO_USAGE
        self.context: ContextFill | None = None
        self.failure: ReportedFailure | None = None
        self.error: Error | None = None
        """The error that ended the turn, if it is certain."""
        self.is_over = False
        """Whether the program has reported the end of the turn."""
        self.is_streaming = False
        """Whether text arrives in deltas, so that whole messages only repeat it."""
        self.warnings: list[str] = []
        self.changed: dict[str, None] = {}
        self.active_at = clock()
        self.tool_since: float | None = None
        """When the running tool started."""
        self._emit = emit
        self._clock = clock
        self._sum = NO_USAGE
        self._total: Usage | None = None
        self._message = ""
        self.request = NO_USAGE
        """The last request, whose input fills the context."""
        self._kept = HeadAndTail(TEXT_BYTES, TEXT_BYTES)
        self._is_new = False
        self.tools: dict[str, ToolUse] = {}
        self._open: dict[str, str] = {}
        """Running tool calls, each with the path that it writes."""
        self._answer: str | None = None

    def mark_active(self) -> None:
        """Note progress."""
        self.active_at = self._clock()

    def add_text(self, text: str, message: str = "") -> None:
        """Add text; text after a tool call, or of another message, replaces the earlier text."""
        if not text:
            return
        if self._is_new or message != self._message:
            self._kept = HeadAndTail(TEXT_BYTES, TEXT_BYTES)
            self._message = message
            self._is_new = False
        self._kept.feed(text.encode("utf-8", "replace"))
        self._emit(TextDelta(text))
        self.mark_active()

    def answers(self, text: str) -> None:
        """Record the whole answer, as reported at the end."""
        whole = HeadAndTail(TEXT_BYTES, TEXT_BYTES)
        whole.feed(text.encode("utf-8", "replace"))
        self._answer = whole.text

    def finishes(self) -> None:
        """Record the end of the turn."""
        self.is_over = True
        self.mark_active()

    def fails(self, message: str, status: int | None = None) -> None:
        """Record a failure."""
        self.failure = ReportedFailure(message=message, status=status)

    def retries(
        self, message: str, *, attempt: int = 0, seconds: float = 0.0, code: str = "", status: int | None = None
    ) -> None:
        """Report a retry, which is no progress."""
        self._emit(RetryNotice(attempt=attempt, seconds=seconds, code=code, message=message, status=status))

    def warns(self, message: str) -> None:
        """Record a warning."""
        if message not in self.warnings and len(self.warnings) < _WARNINGS:
            self.warnings.append(message[:_RESULT_LENGTH])

    @property
    def text(self) -> str:
        """The answer, or else the last text."""
        return self._kept.text if self._answer is None else self._answer

    def calls(
        self, call: str, name: str, arguments: Mapping[str, Any], *, may_write: bool, path: object = None
    ) -> None:
        """Record a tool call, which writes to `path` if it succeeds."""
        self._is_new = True
        if call in self.tools:
            return
        self._emit(ToolCall(id=call, name=name, arguments=dict(arguments)))
        self.mark_active()
        if len(self.tools) >= _TOOLS:
            self.warns(f"Only the first {_TOOLS} tool calls are listed.")
            return
        may_write = may_write and self.invocation.may_write
        self.tools[call] = ToolUse(name=name, arguments=_shown(arguments), may_write=may_write)
        self._open[call] = path if isinstance(path, str) else ""
        self.tool_since = self._clock()

    def gets(self, call: str, result: str, *, is_error: bool = False, is_denied: bool = False) -> None:
        """Record the result of a tool call."""
        self._is_new = True
        self.mark_active()
        use = self.tools.get(call)
        if use is not None:
            is_denied = is_denied or use.is_denied
            self.tools[call] = structs.replace(
                use, result=result[:_RESULT_LENGTH], is_error=is_error or is_denied, is_denied=is_denied
            )
        path = self._open.pop(call, "")
        if path and not is_error and not is_denied:
            self.changes(path)
        self.tool_since = self._clock() if self._open else None

    def denies(self, call: str) -> None:
        """Mark a tool call as denied."""
        if call in self.tools:
            self.tools[call] = structs.replace(self.tools[call], is_denied=True, is_error=True)

    def may_write(self, call: str) -> None:
        """Mark a tool call as one that may write, if the grant allows it."""
        if call in self.tools and self.invocation.may_write:
            self.tools[call] = structs.replace(self.tools[call], may_write=True)

    def changes(self, path: str) -> None:
        """Record a changed file."""
        if path and len(self.changed) < _TOOLS:
            self.changed[path] = None

    def begins(self, request: Usage) -> None:
        """Record the start of a streamed request and its input."""
        self.is_streaming = True
        self.request = request
        self.mark_active()

    def spends(self, output_tokens: int) -> None:
        """Record the output of the current request."""
        self.uses(structs.replace(self.request, output=output_tokens, cost=None))

    def uses(self, used: Usage) -> None:
        """Add the usage of one request."""
        self._sum += structs.replace(used, requests=1)
        self._emit(_tokens(used))
        self.mark_active()

    def set_total(self, total: Usage) -> None:
        """Set the usage of the whole turn, as reported at the end, and emit what was not emitted yet."""
        # Not every program counts requests; a turn has at least one.
        self._total = structs.replace(total, requests=max(total.requests, self._sum.requests, 1))
        rest = minus(total, self._sum)
        if rest.input or rest.output:
            self._emit(_tokens(rest))

    @property
    def usage(self) -> Usage:
        """The usage of the turn, as reported so far."""
        return self._sum if self._total is None else self._total


def minus(total: Usage, before: Usage) -> Usage:
    """The tokens of a total that were not counted before; the cost is the total's."""
    return structs.replace(
        total,
        input=max(0, total.input - before.input),
        output=max(0, total.output - before.output),
        cached=max(0, total.cached - before.cached),
    )


def _tokens(used: Usage) -> TokenUsage:
    return TokenUsage(input_tokens=used.input, output_tokens=used.output, cached_tokens=used.cached, cost=used.cost)


def _shown(arguments: Mapping[str, Any]) -> str:
    try:
        text = json.encode(arguments).decode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError, UnicodeError):
        return ""
    return text if len(text) <= _ARGUMENT_LENGTH else f"{text[: _ARGUMENT_LENGTH - 1]}…"
