"""Observation: calls one observer with redacted text; an observer that raises never harms a run."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, json, structs

from deputy.core.conversation import ToolResult
from deputy.core.errors import DeputyError, Error
from deputy.core.events import ModelCallBegun, ModelCallEnded, StepEnded, ToolCallBegun, ToolCallEnded
from deputy.core.foreign_text import plain
from deputy.core.progress import Progress, retry_text, shown_head
from deputy.engine.ports.observer import ObservedRun, ObservedStep, RunEnd, StepEnd
from deputy.engine.timeouts import StepCancelled
from deputy.processes.outgoing import process_redactor
from deputy.runtime.context import as_value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from deputy.core.approval import Choice
    from deputy.core.events import Known
    from deputy.core.state import State
    from deputy.engine.ports import Beginning, Observer

_SHOWN = 500
"""The maximum length of a text."""


class Observation:
    """Reports the runs of this process to one observer."""

    def __init__(self, observer: Observer) -> None:
        self._observer: Observer | None = observer
        self._redactor = process_redactor()
        self._runs: dict[str, ObservedRun] = {}
        """The started runs that have not ended, also while they are suspended."""

    def run_started(self, state: State, *, is_resumed: bool) -> None:
        """Report a run, unless this round of it was reported before."""
        known = self._runs.get(state.run)
        if known is not None and known.round == state.round:
            return
        run = self._runs[state.run] = ObservedRun(
            session_id=state.run,
            root_id=state.run if state.lineage is None else state.lineage.root_id,
            parent=state.parent,
            label=self._text(state.label),
            command=state.command,
            round=state.round,
            is_resumed=is_resumed,
        )
        self._call("run_started", run)

    def run_ended(self, state: State) -> None:
        """Report the end of a run whose start was reported."""
        run = self._runs.pop(state.run, None)
        if run is not None:
            seconds = 0.0 if state.ended_clock is None else state.round_seconds(state.ended_clock)
            reason = self._text(state.reason)
            self._call("run_ended", run, RunEnd(status=state.status, reason=reason, seconds=seconds, usage=state.usage))

    async def step(
        self, run: str, key: str, begun: Beginning, do: Callable[..., Awaitable[Known]], args: Sequence[Any]
    ) -> Known:
        """Execute a step and report it."""
        started = self._runs.get(run)
        if self._observer is None or started is None:
            return await do(*args)
        step = self._step(started, key, begun)
        self._call("step_started", step)
        clock = asyncio.get_running_loop().time
        began = clock()
        event: Known | None = None
        error: Error | None = None
        try:
            event = await do(*args)
            return event
        except StepCancelled as stopped:
            event = stopped.event
            raise
        except BaseException as raised:
            error = _error_of(raised)
            raise
        finally:
            self._call("step_ended", step, self._step_end(event, error, clock() - began))

    def progress(self, run: str, progress: object) -> None:
        """Report a retry or a fallback; other progress is for watchers."""
        match progress:
            case Progress(event="retry"):
                self._call_with_texts("retried", run, retry_text(progress))
            case Progress(event="fallback", content=taken, reason=reason):
                self._call_with_texts("fell_back", run, taken, reason)
            case _:
                return

    def approval_asked(self, run: str, question: str) -> None:
        """Report a request for an approval."""
        self._call_with_texts("approval_asked", run, question)

    def approval_answered(self, run: str, question: str, choice: Choice) -> None:
        """Report the answer to it."""
        self._call_with_texts("approval_answered", run, question, choice)

    def _step(self, run: ObservedRun, key: str, begun: Beginning) -> ObservedStep:
        match begun:
            case ModelCallBegun():
                return ObservedStep(run=run, key=key, kind="model", name=self._text(begun.model))
            case ToolCallBegun():
                return ObservedStep(run=run, key=key, kind="tool", name=self._text(begun.tool))
            case _:
                return ObservedStep(run=run, key=key, kind="other", name=self._text(begun.step))

    def _step_end(self, event: Known | None, error: Error | None, seconds: float) -> StepEnd:
        if isinstance(event, ModelCallEnded | ToolCallEnded | StepEnded):
            error = event.error
        if isinstance(event, ToolCallEnded) and event.message is not UNSET:
            result = json.decode(event.message, type=ToolResult)
            error = _tool_error(result.content) if result.is_error else error
        if error is not None:
            error = structs.replace(
                error, message=self._text(error.message), recommendation=self._text(error.recommendation)
            )
        if not isinstance(event, ModelCallEnded):
            return StepEnd(seconds=seconds, error=error)
        model = self._text(event.model)
        return StepEnd(seconds=seconds, error=error, usage=event.usage, model=model, backend=event.backend)

    def _text(self, text: str) -> str:
        return shown_head(plain(text), _SHOWN, self._redactor)

    def _call_with_texts(self, method: str, run: str, *texts: str | None) -> None:
        if (started := self._runs.get(run)) is not None:
            self._call(method, started, *(self._text(text or "") for text in texts))

    def _call(self, method: str, *arguments: object) -> None:
        if self._observer is None:
            return
        try:
            getattr(self._observer, method)(*arguments)
        except (Exception, asyncio.CancelledError):  # an observer is foreign code
            name = type(self._observer).__name__
            self._observer = None
            logging.getLogger("deputy.observer").exception("%s.%s raised; it is not called again", name, method)


def _error_of(raised: BaseException) -> Error:
    if isinstance(raised, DeputyError):
        return as_value(raised)
    is_cancelled = isinstance(raised, asyncio.CancelledError)
    return Error(
        type="cancelled" if is_cancelled else "execution",
        code="CANCELLED" if is_cancelled else "INTERNAL_ERROR",
        message="The step was cancelled." if is_cancelled else f"{type(raised).__name__}: {raised}",
        recoverable=is_cancelled,
        recommendation="",
    )


def _tool_error(content: str) -> Error:
    return Error(type="tool", message=content, recoverable=True, recommendation="")
