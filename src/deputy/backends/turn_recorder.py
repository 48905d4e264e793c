"""What another agent has told of its turn so far: passed on as it comes, and kept within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, json, structs

from deputy.core.conversation import RetryNotice, TextDelta, TokenUsage, ToolCall
from deputy.core.outcome import NO_USAGE, Usage
from deputy.engine.ports.backend import ContextFill, ToolUse
from deputy.processes.head_and_tail import HeadAndTail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deputy.core.errors import Error
    from deputy.engine.ports.backend import Emit

_TEXT_BYTES = 200_000
_TOOLS = 500
_WARNINGS = 20
_ARGUMENT_LENGTH = 2000
_RESULT_LENGTH = 1000


class ReportedFailure(Struct, frozen=True, kw_only=True):
    """What the agent says went wrong, in its own or its provider's words."""

    message: str
    status: int | None = None
    """The provider's status, where it tells that."""


class TurnRecorder:
    """One turn as it is told; whatever counts as progress moves `active_at`."""

    def __init__(self, emit: Emit, clock: Callable[[], float], before: Usage = NO_USAGE) -> None:
        self.before = before
        """What the agent had counted before this turn, where it counts over its whole session."""
        self.session = ""
        self.model = ""
        self.counted: Usage = NO_USAGE
        self.context: ContextFill | None = None
        self.failure: ReportedFailure | None = None
        self.error: Error | None = None
        """What ended the turn, where that is known for sure."""
        self.is_over = False
        """Whether it has said that the turn is at its end."""
        self.is_streaming = False
        """Whether its words come in pieces, so that whole messages only repeat them."""
        self.warnings: list[str] = []
        self.changed: dict[str, None] = {}
        self.active_at = clock()
        self.tool_since: float | None = None
        """Since when a tool of it is at work."""
        self._emit = emit
        self._clock = clock
        self._sum = NO_USAGE
        self._total: Usage | None = None
        self._message = ""
        self._request = NO_USAGE
        self._kept = HeadAndTail(_TEXT_BYTES, _TEXT_BYTES)
        self._is_new = False
        self._tools: dict[str, ToolUse] = {}
        self._open: dict[str, str] = {}
        """The tools at work, and what each is to write."""
        self._answer: str | None = None

    # --- what it says -------------------------------------------------------------------------------------------------

    def mark_active(self) -> None:
        """It gives a sign of life."""
        self.active_at = self._clock()

    def add_text(self, text: str, message: str = "") -> None:
        """More of its words; those after a tool, or of another message, begin anew."""
        if not text:
            return
        if self._is_new or message != self._message:
            self._kept = HeadAndTail(_TEXT_BYTES, _TEXT_BYTES)
            self._message = message
            self._is_new = False
        self._kept.feed(text.encode("utf-8", "replace"))
        self._emit(TextDelta(text))
        self.mark_active()

    def answers(self, text: str) -> None:
        """Its whole answer, as it says at the end."""
        whole = HeadAndTail(_TEXT_BYTES, _TEXT_BYTES)
        whole.feed(text.encode("utf-8", "replace"))
        self._answer = whole.text

    def finishes(self) -> None:
        """It says that the turn is at its end."""
        self.is_over = True
        self.mark_active()

    def fails(self, message: str, status: int | None = None) -> None:
        """It says what went wrong."""
        self.failure = ReportedFailure(message=message, status=status)

    def retries(self, message: str, *, attempt: int = 0, seconds: float = 0.0, code: str = "") -> None:
        """It tries something again, which is no progress."""
        self._emit(RetryNotice(attempt=attempt, seconds=seconds, code=code, message=message))

    def warns(self, message: str) -> None:
        """It says something that is worth knowing."""
        if message not in self.warnings and len(self.warnings) < _WARNINGS:
            self.warnings.append(message[:_RESULT_LENGTH])

    @property
    def text(self) -> str:
        """Its answer, or the last thing it said."""
        return self._kept.text if self._answer is None else self._answer

    # --- what it does -------------------------------------------------------------------------------------------------

    def calls(
        self, call: str, name: str, arguments: Mapping[str, Any], *, may_write: bool, path: object = None
    ) -> None:
        """It uses a tool, which writes to this path if it does well."""
        self._is_new = True
        if call in self._tools:
            return
        self._emit(ToolCall(id=call, name=name, arguments=dict(arguments)))
        self.mark_active()
        if len(self._tools) >= _TOOLS:
            self.warns(f"Only the first {_TOOLS} tool calls are listed.")
            return
        shown = _shown(arguments)
        self._tools[call] = ToolUse(name=name, arguments=shown, may_write=may_write)
        self._open[call] = path if isinstance(path, str) else ""
        self.tool_since = self._clock()

    def gets(self, call: str, result: str, *, is_error: bool = False, is_denied: bool = False) -> None:
        """A tool gave its result."""
        self._is_new = True
        self.mark_active()
        use = self._tools.get(call)
        if use is not None:
            is_denied = is_denied or use.is_denied
            self._tools[call] = structs.replace(
                use, result=result[:_RESULT_LENGTH], is_error=is_error or is_denied, is_denied=is_denied
            )
        path = self._open.pop(call, "")
        if path and not is_error and not is_denied:
            self.changes(path)
        self.tool_since = self._clock() if self._open else None

    def denies(self, call: str) -> None:
        """A tool was not permitted."""
        use = self._tools.get(call)
        if use is not None:
            self._tools[call] = structs.replace(use, is_denied=True, is_error=True)

    def may_write(self, call: str) -> None:
        """A tool turns out to be one that could change something."""
        use = self._tools.get(call)
        if use is not None:
            self._tools[call] = structs.replace(use, may_write=True)

    def changes(self, path: str) -> None:
        """It wrote a file."""
        if path and len(self.changed) < _TOOLS:
            self.changed[path] = None

    @property
    def tools_used(self) -> tuple[ToolUse, ...]:
        """The tools it used, in order."""
        return tuple(self._tools.values())

    # --- what it takes ------------------------------------------------------------------------------------------------

    def begins(self, request: Usage) -> None:
        """A request is under way, with so much input; its words come in pieces."""
        self.is_streaming = True
        self._request = request
        self.mark_active()

    def spends(self, output_tokens: int) -> None:
        """The request under way gave so much output."""
        asked = self._request
        self.uses(TokenUsage(input_tokens=asked.input, output_tokens=output_tokens, cached_tokens=asked.cached))

    @property
    def last_input(self) -> int:
        """How much the last request took in: how full its context is."""
        return self._request.input

    def uses(self, used: TokenUsage) -> None:
        """One request took so much."""
        self._sum += used.usage
        self._emit(used)
        self.mark_active()

    def set_total(self, total: Usage) -> None:
        """What the whole turn took, as it says at the end; what was not told before is told now."""
        rest = TokenUsage(
            input_tokens=max(0, total.input - self._sum.input),
            output_tokens=max(0, total.output - self._sum.output),
            cached_tokens=max(0, total.cached - self._sum.cached),
            cost=total.cost,
        )
        # Not all of them count requests, and a turn takes at least one.
        self._total = structs.replace(total, requests=max(total.requests, self._sum.requests, 1))
        if rest.input_tokens or rest.output_tokens:
            self._emit(rest)

    @property
    def usage(self) -> Usage:
        """What the turn took, as far as it was told."""
        return self._sum if self._total is None else self._total


def _shown(arguments: Mapping[str, Any]) -> str:
    try:
        text = json.encode(arguments).decode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError, UnicodeError):
        return ""
    return text if len(text) <= _ARGUMENT_LENGTH else f"{text[: _ARGUMENT_LENGTH - 1]}…"
