"""Observation: calls the observers with redacted text; an observer that raises never harms a run."""

from __future__ import annotations

import asyncio
import logging
from functools import lru_cache
from random import getrandbits
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, json, structs

from deputy.core.conversation import ToolResult
from deputy.core.errors import DeputyError, Error
from deputy.core.events import ModelCallBegun, ModelCallEnded, RunOpened, StepEnded, ToolCallBegun, ToolCallEnded
from deputy.core.foreign_text import plain
from deputy.core.progress import Progress, retry_text, shown_head
from deputy.core.task import label_of
from deputy.core.trace_context import read_traceparent, run_span_id, run_trace_id
from deputy.engine.ports.observer import ObservedRun, ObservedStep, RunEnd, SpanIds, StepEnd
from deputy.engine.timeouts import StepCancelled
from deputy.processes.outgoing import process_redactor
from deputy.runtime.context import as_value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from msgspec import Raw

    from deputy.core.approval import Choice
    from deputy.core.events import Known
    from deputy.core.outcome import Outcome
    from deputy.core.request import Lineage
    from deputy.core.state import State
    from deputy.engine.ports import Beginning, Observer, RunStart

_SHOWN = 500
"""The maximum length of a text."""
_CONTENT = 20_000
"""The maximum length of a prompt, message, result or report."""
_NAMES = 256


class Observation:
    """Reports the runs of this process to its observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = list(observers)
        self._traces = any(observer.traces for observer in observers)
        self._wants_content = any(observer.wants_content for observer in observers)
        self._redactor = process_redactor()
        self._name = lru_cache(_NAMES)(self._text)
        """Redacts a name. Models and tools are few, and each is named in every step."""
        self._runs: dict[str, ObservedRun] = {}
        """The started runs that have not ended, also while they are suspended."""

    def run_started(self, state: State, start: RunStart, *, is_resumed: bool) -> None:
        """Report a run, unless this round of it was reported before."""
        known = self._runs.get(state.run)
        if known is not None and known.round == state.round:
            return
        prompt = start.prompt if isinstance(start, RunOpened) else start.request.prompt
        is_named = not state.label.startswith(label_of(prompt)) if prompt and state.label else bool(state.label)
        run = self._runs[state.run] = self._observed(
            state,
            is_resumed=is_resumed,
            label=state.label if is_named else "",
            prompt=self._content(prompt) if self._wants_content else "",
        )
        self._call("run_started", run)

    def run_ended(self, state: State, outcome: Outcome | None = None, *, is_elsewhere: bool = False) -> None:
        """Report the end of a run whose start was reported, or that was ended here without being resumed."""
        run = self._runs.pop(state.run, None)
        if run is None and not is_elsewhere and not state.is_live:
            run = self._observed(state, is_resumed=True)
        if run is None:
            return
        seconds = 0.0 if state.ended_clock is None else state.round_seconds(state.ended_clock)
        end = RunEnd(
            status=state.status,
            reason=self._text(state.reason),
            seconds=seconds,
            usage=state.usage,
            is_elsewhere=is_elsewhere,
            report="" if outcome is None or not self._wants_content else self._content(outcome.report),
        )
        self._call("run_ended", run, end)

    def _observed(self, state: State, *, is_resumed: bool, label: str = "", prompt: str = "") -> ObservedRun:
        lineage = state.lineage
        hop = None if lineage is None else lineage.path[-1]
        return ObservedRun(
            session_id=state.run,
            root_id=state.run if lineage is None else lineage.root_id,
            parent=state.parent,
            label=self._text(state.label),
            command=state.command,
            round=state.round,
            is_resumed=is_resumed,
            name=self._text(hop.name if hop is not None and hop.role == "agent" else label),
            requested_at=state.resumed_at if state.round and state.resumed_at is not None else state.requested_at,
            span=self._span(state, lineage) if self._traces and lineage is not None else None,
            prompt=prompt,
        )

    def _span(self, state: State, lineage: Lineage) -> SpanIds:
        caller = read_traceparent(lineage.traceparent)
        if state.parent is not None:
            above = self._runs.get(state.parent)
            parent_id = run_span_id(state.parent, 0 if above is None else above.round)
        elif caller is not None:
            parent_id = caller.span_id
        else:
            # A trace has one top: later rounds are below the first.
            parent_id = run_span_id(state.run, 0) if state.round else ""
        return SpanIds(
            trace_id=run_trace_id(lineage),
            span_id=run_span_id(state.run, state.round),
            parent_id=parent_id,
            is_sampled=None if caller is None else caller.is_sampled,
        )

    async def step(
        self, run: str, key: str, begun: Beginning, do: Callable[..., Awaitable[Known]], args: Sequence[Any]
    ) -> Known:
        """Execute a step and report it."""
        started = self._runs.get(run)
        if not self._observers or started is None:
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
            self._call("step_ended", step, self._step_end(event, error, clock() - began), is_end=True)

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
        span_id = f"{getrandbits(64) or 1:016x}" if self._traces else ""
        match begun:
            case ModelCallBegun():
                return ObservedStep(run=run, key=key, kind="model", name=self._name(begun.model), span_id=span_id)
            case ToolCallBegun():
                arguments = ""
                if self._wants_content and begun.arguments is not UNSET:
                    arguments = self._content_json(begun.arguments)
                return ObservedStep(
                    run=run,
                    key=key,
                    kind="tool",
                    name=self._name(begun.tool),
                    span_id=span_id,
                    call=self._name(begun.call),
                    arguments=arguments,
                )
            case _:
                return ObservedStep(run=run, key=key, kind="other", name=self._name(begun.step))

    def _step_end(self, event: Known | None, error: Error | None, seconds: float) -> StepEnd:
        if isinstance(event, ModelCallEnded | ToolCallEnded | StepEnded):
            error = event.error
        content = ""
        if isinstance(event, ToolCallEnded) and event.message is not UNSET:
            result = json.decode(event.message, type=ToolResult)
            error = _tool_error(result.content) if result.is_error else error
            content = self._content(result.content) if self._wants_content else ""
        if error is not None:
            error = structs.replace(
                error, message=self._text(error.message), recommendation=self._text(error.recommendation)
            )
        if not isinstance(event, ModelCallEnded):
            return StepEnd(seconds=seconds, error=error, content=content)
        if self._wants_content and event.message is not UNSET:
            content = self._content_json(event.message)
        return StepEnd(
            seconds=seconds,
            error=error,
            usage=event.usage,
            model=self._name(event.model),
            backend=event.backend,
            stop=self._name(event.stop),
            content=content,
        )

    def _text(self, text: str) -> str:
        return shown_head(plain(text), _SHOWN, self._redactor)

    def _content(self, text: str) -> str:
        is_long = len(text) > _CONTENT
        # Redacted before the cut: half a secret is not recognised.
        return self._redactor.redact(plain(text[:_CONTENT]), is_cut=is_long)

    def _content_json(self, data: Raw) -> str:
        return self._content(self._redactor.redact_json(bytes(data)).decode("utf-8", "replace"))

    def _call_with_texts(self, method: str, run: str, *texts: str | None) -> None:
        if (started := self._runs.get(run)) is not None:
            self._call(method, started, *(self._text(text or "") for text in texts))

    def _call(self, method: str, *arguments: object, is_end: bool = False) -> None:
        # The first observer to see a step start is the last to see it end.
        for observer in reversed(self._observers) if is_end else tuple(self._observers):
            try:
                getattr(observer, method)(*arguments)
            except (Exception, asyncio.CancelledError):  # an observer is foreign code
                self._observers = [other for other in self._observers if other is not observer]
                name = type(observer).__name__
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
