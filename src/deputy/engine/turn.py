"""One model call as a step: budget reserved before, time limited, usage always counted."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from msgspec import UNSET, Raw, Struct, UnsetType, structs

from deputy.core.conversation import (
    AssistantMessage,
    Conversation,
    GenerationSettings,
    RetryNotice,
    Stop,
    Text,
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
from deputy.core.errors import Error
from deputy.core.events import ModelCallEnded
from deputy.core.limits import Amount, Shortfall, repeats_text, time_is_nearly_up, time_is_up
from deputy.core.model_errors import ContextExhausted, ModelError
from deputy.core.outcome import Usage
from deputy.core.progress import Progress, retry_progress
from deputy.core.text_loop import LoopWatch, without_loop
from deputy.engine.agent_context import AgentContext
from deputy.engine.budget import amount
from deputy.engine.history import raw
from deputy.engine.ports.model import is_metered
from deputy.engine.salvage import salvage
from deputy.engine.timeouts import StepCancelled, TimerEntry

SILENT_SECONDS = 0.3
"""How long a model may be silent before it is shown as thinking."""


class TurnInput(Struct, frozen=True, kw_only=True):
    """The arguments of a model call."""

    agent: AgentContext
    conversation: Conversation
    toolset: Toolset
    settings: GenerationSettings
    tokens: int
    estimate: int
    """Our own estimate of the tokens sent."""
    seconds: float | None
    """The time left; None means that only the idle limit applies."""


async def call_model(turn: TurnInput) -> ModelCallEnded:
    """Call the model once; a failure is the event's error."""
    agent, ledger = turn.agent, turn.agent.ledger
    output = turn.settings.max_output_tokens or 0
    wanted = Amount(tokens=turn.tokens + output, requests=1, cost=agent.max_cost(turn.tokens, output))
    hold = await ledger.reserve(wanted)
    if isinstance(hold, Shortfall):
        return ModelCallEnded(model=agent.model.name, error=out_of_budget(hold), budgets=ledger.uses(hold))
    text = _TurnProgress(turn)
    try:
        stream = agent.model.stream(turn.conversation, turn.toolset, turn.settings)
        async with agent.timer.timeout(turn.seconds), aclosing(stream):
            async for event in stream:
                if text.on_event(event):
                    text.end_loop()
                    break
    except ModelError as failure:
        text.fail(failure)
    except TimeoutError:
        text.charge_cut()
        text.error = (time_is_up if text.is_final else time_is_nearly_up)(agent.seconds)
    except asyncio.CancelledError as stopped:
        text.charge_cut()
        raise StepCancelled(text.interrupted()) from stopped
    finally:
        text.end_silence()
        await ledger.commit(hold, amount(text.usage))
    return text.ended()


class _TurnProgress:
    """Folds the stream of one turn."""

    def __init__(self, turn: TurnInput) -> None:
        self._turn = turn
        self._agent = turn.agent
        self._stop: Stop | None = None
        self._words: list[str] = []
        """The text streamed in the current request."""
        # A secret may arrive in pieces, so the shown text lags behind by a possible prefix of one.
        self._shown = turn.agent.redactor.stream()
        self._loop = LoopWatch()
        self.usage = Usage(requests=0)
        self.is_final = turn.settings.tool_choice == "none"
        self._is_metered = is_metered(turn.agent.model)
        self._received = 0
        """Bytes received in the current request."""
        self._thought = 0
        """Bytes of thinking received."""
        self._window: int | None = None
        self.error: Error | None = None
        self._silence = self._show_silence_after(SILENT_SECONDS)
        self._is_sent = True
        """Whether a request may have reached the provider: not while a retry waits."""

    def on_event(self, event: TextDelta | ThinkingDelta | ToolCall | TokenUsage | RetryNotice | Stop) -> bool:
        """Fold the next event; True if the model writes the same text again and again."""
        label = self._agent.label
        match event:
            case TextDelta(text=text):
                self._received += text_size(text)
                self._words.append(text)
                self._show(self._shown.feed(text))
                return self._loop.feed(text)
            case ThinkingDelta(text=text):
                self._received += text_size(text)
                self._show_thinking(text_size(text))
            case ToolCall():
                self._received += call_size(event)
            case TokenUsage():
                self._charge(event)
            case RetryNotice():
                if self._received:
                    self.charge_unreported()
                self._words.clear()
                self._loop = LoopWatch()
                self._agent.emit(retry_progress(label, event))
                # The retry stays visible while its wait lasts.
                self.end_silence()
                self._is_sent = False
                self._silence = self._show_silence_after(event.seconds + SILENT_SECONDS)
            case Stop():
                # Flush the text that the redactor held back, without trailing whitespace.
                self._show(self._shown.flush().rstrip())
                self._stop = event
        return False

    def end_loop(self) -> None:
        """Stop a turn that repeats itself; the repeated text is kept once."""
        self.charge_unreported()
        self._words = [without_loop("".join(self._words))]
        self.error = repeats_text(self._agent.model.name)

    def _charge(self, used: TokenUsage) -> None:
        """Add the usage of one request: as reported if plausible, else our estimate."""
        turn, received = self._turn, estimated_tokens(self._received)
        self._received = 0
        most = turn.settings.max_output_tokens
        if not self._is_metered or is_plausible(
            used, sent_tokens=turn.estimate, received_tokens=received, most_output=most
        ):
            self.usage += used.usage
            return
        cost = self._agent.max_cost(turn.estimate, received)
        self.usage += Usage(input=turn.estimate, output=received, requests=1, cost=cost, estimated=True)

    def charge_unreported(self) -> None:
        """Add our estimate for a request that reported no usage."""
        if self._is_metered:
            self._charge(TokenUsage(is_reported=False))

    def charge_cut(self) -> None:
        """Add our estimate for a request that was cut short, if it may have reached the provider."""
        if self._received or self._is_sent:
            self.charge_unreported()

    def _show(self, text: str) -> None:
        if text:
            self._agent.emit(Progress(event="text", label=self._agent.label, content=text))

    def _show_silence_after(self, seconds: float) -> TimerEntry:
        return self._agent.timer.set(seconds, self._show_silence)

    def _show_silence(self) -> None:
        """Show that the model is at work: without text the last tool call would seem to run still."""
        self._is_sent = True
        if not self._received:
            self._show_thinking(0)

    def end_silence(self) -> None:
        """The turn has ended, or waits for a retry."""
        self._agent.timer.cancel(self._silence)

    def _show_thinking(self, size: int) -> None:
        """Show how much the model has thought, never what."""
        self._thought += size
        thought = estimated_tokens(self._thought)
        self._agent.emit(Progress(event="thinking", label=self._agent.label, output=thought))

    def fail(self, failure: ModelError) -> None:
        if failure.used is not None:
            self._charge(failure.used)
        elif self._received:
            self.charge_unreported()
        if isinstance(failure, ContextExhausted):
            self._window = failure.window
        if not failure.retryable:
            # What a provider sends before such an error is refused, too long, or the answer to half a conversation.
            self._words.clear()
        self.error = failure.as_value()

    def interrupted(self) -> ModelCallEnded:
        """The event of a cancelled call; usage is known only if the provider streams it."""
        if self.usage.requests:
            use = "Its usage up to then is counted."
        else:
            use = f"Its usage is unknown; about {self._turn.tokens:,} tokens were sent."
        error = Error(
            type="cancelled",
            code="CANCELLED",
            message=f"The model call was cancelled while it ran. {use}",
            recoverable=True,
            recommendation="Resume the run to repeat the call.",
        )
        return ModelCallEnded(model=self._agent.model.name, usage=self.usage, error=error, message=self._message())

    def _message(self) -> Raw | UnsetType:
        """The model's message; of a call that was cut short, the text that it streamed."""
        if self._stop is not None:
            return raw(self._stop.message)
        text = "".join(self._words).rstrip()
        return raw(AssistantMessage(parts=(Text(text=text),))) if text else UNSET

    def _salvaged(self, stop: Stop) -> AssistantMessage:
        key = self._turn.settings.idempotency_key or ""
        if self.is_final:
            # The tools are only there for the provider's cache.
            parts = tuple(part for part in stop.message.parts if not isinstance(part, ToolCall))
            return structs.replace(stop.message, parts=parts)
        # A message that was cut is continued.
        can_call = len(self._turn.toolset) and stop.reason == "end"
        return salvage(stop.message, self._agent, key.replace(":", "-")) if can_call else stop.message

    def ended(self) -> ModelCallEnded:
        stop = self._stop
        message = None if stop is None else self._salvaged(stop)
        is_salvaged = stop is not None and message is not stop.message and not self.is_final
        return ModelCallEnded(
            model=self._agent.model.name,
            usage=self.usage,
            error=self.error,
            message=self._message() if message is None else raw(message),
            stop="" if stop is None else stop.reason,
            salvaged="" if stop is None or not is_salvaged else stop.message.text,
            window=self._window,
            budgets=self._agent.ledger.uses(),
            context_tokens=self.usage.input + self.usage.output if self.usage.input else self._turn.tokens,
            context_window=self._agent.window,
        )


def out_of_budget(shortfall: Shortfall) -> Error:
    """The error of a call that exceeds its budget."""
    return Error(
        type="budget",
        code="BUDGET_SPENT",
        message=f"The budget is not enough: {shortfall.message}.",
        recoverable=True,
        recommendation="Raise the budget and resume.",
    )
