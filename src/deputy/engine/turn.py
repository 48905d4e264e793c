"""One model call as a step: reserved before it is made, bounded in time, counted whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import UNSET, Struct

from deputy.core.conversation import (
    Conversation,
    GenerationSettings,
    RetryNotice,
    Stop,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolCall,
    Toolset,
    call_size,
    estimated_tokens,
    is_plausible,
    text_size,
)
from deputy.core.errors import ContextExhausted, Error, ModelError
from deputy.core.events import ModelCallEnded
from deputy.core.limits import Amount, Shortfall, time_is_up
from deputy.core.outcome import Usage
from deputy.core.progress import Progress
from deputy.core.redaction import Redactor
from deputy.engine.budget import BudgetLedger, amount
from deputy.engine.history import raw
from deputy.engine.ports import Model
from deputy.engine.ports.model import is_metered
from deputy.engine.step_cancelled import StepCancelled
from deputy.engine.timeouts import timeout

_THINKING_SECONDS = 1.0
"""How often watchers hear of thinking, at most."""


class TurnArgs(Struct, frozen=True, kw_only=True, gc=False):
    """What a model call is made of that is small: the rest is in memory."""

    turn: int
    model: str


class TurnView(Struct, frozen=True, kw_only=True):
    """What a model call needs that is only in memory."""

    label: str
    model: Model
    conversation: Conversation
    toolset: Toolset
    settings: GenerationSettings
    tokens: int
    estimate: int
    """Our own estimate of how many tokens are sent."""
    window: int | None
    """How many tokens the context may have; None where that is not known."""
    ledger: BudgetLedger
    max_cost_nanos: Callable[[int, int], int | None]
    seconds: float | None
    """How long it may take; None is as long as it gives signs of life."""
    limit: float | None
    """The time limit of the task, which is reached when a call takes too long."""
    emit: Callable[[Progress], None]
    redactor: Redactor


async def call_model(args: TurnArgs, view: TurnView) -> ModelCallEnded:
    """Ask the model for its next turn; a failure is the event's error."""
    output = view.settings.max_output_tokens or 0
    wanted = Amount(tokens=view.tokens + output, requests=1, cost=view.max_cost_nanos(view.tokens, output))
    await view.ledger.refresh()
    shortfall = view.ledger.reserve(wanted)
    if shortfall is not None:
        return ModelCallEnded(model=args.model, error=out_of_budget(shortfall), budgets=view.ledger.uses())
    text = _TurnProgress(args, view)
    try:
        async with timeout(view.seconds):
            async for event in view.model.stream(view.conversation, view.toolset, view.settings):
                text.on_event(event)
    except ModelError as failure:
        text.fail(failure)
    except TimeoutError:
        text.charge_unreported()
        text.error = time_is_up(view.limit)
    except asyncio.CancelledError as stopped:
        text.charge_unreported()
        raise StepCancelled(text.interrupted()) from stopped
    finally:
        view.ledger.commit(wanted, amount(text.usage))
    return text.ended()


class _TurnProgress:
    """What one streamed turn has told so far."""

    def __init__(self, args: TurnArgs, view: TurnView) -> None:
        self._args = args
        self._view = view
        self._stop: Stop | None = None
        # A secret may come in pieces, so what is shown lags behind by what could still become one.
        self._shown = view.redactor.stream()
        self.usage = Usage(requests=0)
        self._is_metered = is_metered(view.model)
        self._received = 0
        """How many bytes came of the request under way."""
        self._thought = 0
        """How many bytes of thinking came."""
        self._thinking_shown_at = float("-inf")
        self._window: int | None = None
        self.error: Error | None = None

    def on_event(self, event: TextDelta | ThinkingDelta | ToolCall | TokenUsage | RetryNotice | Stop) -> None:
        label = self._view.label
        match event:
            case TextDelta(text=text):
                self._received += text_size(text)
                self._show(self._shown.feed(text))
            case ThinkingDelta(text=text):
                self._received += text_size(text)
                self._show_thinking(text_size(text))
            case ToolCall():
                self._received += call_size(event)
            case TokenUsage():
                self._charge(event)
            case RetryNotice(message=message):
                if self._received:
                    self.charge_unreported()
                self._view.emit(Progress(event="retry", label=label, reason=message))
            case Stop():
                # What may be a secret is held back, and a blank at the end may begin one; it is not worth a word.
                self._show(self._shown.flush().rstrip())
                self._stop = event

    def _charge(self, used: TokenUsage) -> None:
        """Count what one request used: as reported where that is plausible, else as we estimate it."""
        view, received = self._view, estimated_tokens(self._received)
        self._received = 0
        most = view.settings.max_output_tokens
        if not self._is_metered or is_plausible(
            used, sent_tokens=view.estimate, received_tokens=received, most_output=most
        ):
            self.usage += used.usage
            return
        cost = view.max_cost_nanos(view.estimate, received)
        self.usage += Usage(input=view.estimate, output=received, requests=1, cost=cost, estimated=True)

    def charge_unreported(self) -> None:
        """Count the request under way, of which nothing was reported."""
        if self._is_metered:
            self._charge(TokenUsage(is_reported=False))

    def _show(self, text: str) -> None:
        if text:
            self._view.emit(Progress(event="text", label=self._view.label, content=text))

    def _show_thinking(self, size: int) -> None:
        """Show how much the model has thought, never what."""
        self._thought += size
        now = asyncio.get_running_loop().time()
        if now - self._thinking_shown_at >= _THINKING_SECONDS:
            self._thinking_shown_at = now
            thought = estimated_tokens(self._thought)
            self._view.emit(Progress(event="thinking", label=self._view.label, output=thought))

    def fail(self, failure: ModelError) -> None:
        if failure.used is not None:
            self._charge(failure.used)
        elif self._received:
            self.charge_unreported()
        if isinstance(failure, ContextExhausted):
            self._window = failure.window
        self.error = failure.as_value()

    def interrupted(self) -> ModelCallEnded:
        """The call as far as it was: what it used is known only where the provider tells that as it goes."""
        if self.usage.requests:
            use = "What it had used by then is counted."
        else:
            use = f"What it used is not known; about {self._view.tokens:,} tokens were sent."
        error = Error(
            type="cancelled",
            code="CANCELLED",
            message=f"The call was stopped while it was under way. {use}",
            recoverable=True,
            recommendation="Resume the run: the call is made again.",
        )
        return ModelCallEnded(model=self._args.model, usage=self.usage, error=error)

    def ended(self) -> ModelCallEnded:
        stop = self._stop
        return ModelCallEnded(
            model=self._args.model,
            usage=self.usage,
            error=self.error,
            message=UNSET if stop is None else raw(stop.message),
            stop="" if stop is None else stop.reason,
            window=self._window,
            budgets=self._view.ledger.uses(),
            context_tokens=self.usage.input + self.usage.output if self.usage.input else self._view.tokens,
            context_window=self._view.window,
        )


def out_of_budget(shortfall: Shortfall) -> Error:
    """Why a call is not made that its budget does not hold."""
    return Error(
        type="budget",
        code="BUDGET_SPENT",
        message=f"The budget is spent: {shortfall.message}.",
        recoverable=True,
        recommendation="Raise the budget and resume.",
    )
