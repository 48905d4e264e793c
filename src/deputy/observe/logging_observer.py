"""LoggingObserver: one line per happening through the standard `logging`, silent until a program adds a handler."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from deputy.core.outcome import used_text
from deputy.engine.ports.observer import ObservedStep, Observer

if TYPE_CHECKING:
    from deputy.core.approval import Choice
    from deputy.core.outcome import Usage
    from deputy.engine.ports.observer import ObservedRun, RunEnd, StepEnd

_RUN = logging.getLogger("deputy.run")
_STEP = logging.getLogger("deputy.step")
_RETRY = logging.getLogger("deputy.retry")
_FALLBACK = logging.getLogger("deputy.fallback")
_APPROVAL = logging.getLogger("deputy.approval")
logging.getLogger("deputy").addHandler(logging.NullHandler())


class LoggingObserver(Observer):
    """Logs to `deputy.run`, `deputy.step`, `deputy.retry`, `deputy.fallback` and `deputy.approval`.

    Problems are warnings; starts of steps, and steps that are no model or tool call, are debug messages. When another
    observer traces, each record has the attributes `otelTraceID` and `otelSpanID`.
    """

    def run_started(self, run: ObservedRun) -> None:
        """A run starts, or is resumed here."""
        verb = "resumed" if run.is_resumed else "started"
        below = "" if run.parent is None else f" below {run.parent}"
        _log(_RUN, logging.INFO, run, "%s%s", verb, below)

    def run_ended(self, run: ObservedRun, end: RunEnd) -> None:
        """A run has ended."""
        level = logging.WARNING if end.status in ("failed", "rejected") else logging.INFO
        reason = f": {end.reason}" if end.reason else ""
        _log(_RUN, level, run, "%s in %.1f s%s%s", end.status, end.seconds, _used(end.usage), reason)

    def step_started(self, step: ObservedStep) -> None:
        """A step starts."""
        _log(_STEP, logging.DEBUG, step, "%s %s started [%s]", step.kind, step.name, step.key)

    def step_ended(self, step: ObservedStep, end: StepEnd) -> None:
        """A step ended."""
        name = end.model or step.name
        if end.error is not None:
            text = "%s %s failed after %.2f s%s: %s"
            _log(_STEP, logging.WARNING, step, text, step.kind, name, end.seconds, _used(end.usage), end.error.message)
            return
        level = logging.DEBUG if step.kind == "other" else logging.INFO
        _log(_STEP, level, step, "%s %s took %.2f s%s", step.kind, name, end.seconds, _used(end.usage))

    def retried(self, run: ObservedRun, reason: str) -> None:
        """A request to a model is repeated."""
        _log(_RETRY, logging.WARNING, run, "%s", reason)

    def fell_back(self, run: ObservedRun, taken: str, reason: str) -> None:
        """The run continues with another model or backend."""
        _log(_FALLBACK, logging.WARNING, run, "falls back to %s: %s", taken, reason)

    def approval_asked(self, run: ObservedRun, question: str) -> None:
        """A person is asked for an approval."""
        _log(_APPROVAL, logging.INFO, run, "waits for approval: %s", question)

    def approval_answered(self, run: ObservedRun, question: str, choice: Choice) -> None:
        """An approval was answered."""
        _log(_APPROVAL, logging.INFO, run, "approval answered %s: %s", choice, question)


def _log(logger: logging.Logger, level: int, of: ObservedRun | ObservedStep, text: str, *values: object) -> None:
    if not logger.isEnabledFor(level):
        return
    run, span_id = (of.run, of.span_id) if isinstance(of, ObservedStep) else (of, "")
    # The names that OpenTelemetry's own instrumentation of `logging` gives to them.
    extra = {"otelTraceID": run.span.trace_id, "otelSpanID": span_id or run.span.span_id} if run.span else None
    logger.log(level, f"%s [%s] {text}", run.session_id, run.label or run.command, *values, extra=extra)


def _used(usage: Usage) -> str:
    return f", {used_text(usage)}" if usage.requests else ""
