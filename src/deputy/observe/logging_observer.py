"""LoggingObserver: one line per happening through the standard `logging`, silent until a program adds a handler."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from deputy.core.outcome import used_text
from deputy.engine.ports.observer import Observer

if TYPE_CHECKING:
    from deputy.core.approval import Choice
    from deputy.core.outcome import Usage
    from deputy.engine.ports.observer import ObservedRun, ObservedStep, RunEnd, StepEnd

_RUN = logging.getLogger("deputy.run")
_STEP = logging.getLogger("deputy.step")
_RETRY = logging.getLogger("deputy.retry")
_FALLBACK = logging.getLogger("deputy.fallback")
_APPROVAL = logging.getLogger("deputy.approval")
logging.getLogger("deputy").addHandler(logging.NullHandler())


class LoggingObserver(Observer):
    """Logs to `deputy.run`, `deputy.step`, `deputy.retry`, `deputy.fallback` and `deputy.approval`.

    Problems are warnings; starts of steps, and steps that are no model or tool call, are debug messages.
    """

    def run_started(self, run: ObservedRun) -> None:
        """A run starts, or is resumed here."""
        verb = "resumed" if run.is_resumed else "started"
        below = "" if run.parent is None else f" below {run.parent}"
        _RUN.info("%s %s%s", _named(run), verb, below)

    def run_ended(self, run: ObservedRun, end: RunEnd) -> None:
        """A run has ended."""
        level = logging.WARNING if end.status in ("failed", "rejected") else logging.INFO
        reason = f": {end.reason}" if end.reason else ""
        _RUN.log(level, "%s %s in %.1f s%s%s", _named(run), end.status, end.seconds, _used(end.usage), reason)

    def step_started(self, step: ObservedStep) -> None:
        """A step starts."""
        _STEP.debug("%s %s %s started [%s]", _named(step.run), step.kind, step.name, step.key)

    def step_ended(self, step: ObservedStep, end: StepEnd) -> None:
        """A step ended."""
        name = end.model or step.name
        if end.error is not None:
            text = "%s %s %s failed after %.2f s%s: %s"
            _STEP.warning(text, _named(step.run), step.kind, name, end.seconds, _used(end.usage), end.error.message)
            return
        level = logging.DEBUG if step.kind == "other" else logging.INFO
        _STEP.log(level, "%s %s %s took %.2f s%s", _named(step.run), step.kind, name, end.seconds, _used(end.usage))

    def retried(self, run: ObservedRun, reason: str) -> None:
        """A request to a model is repeated."""
        _RETRY.warning("%s %s", _named(run), reason)

    def fell_back(self, run: ObservedRun, taken: str, reason: str) -> None:
        """The run continues with another model or backend."""
        _FALLBACK.warning("%s falls back to %s: %s", _named(run), taken, reason)

    def approval_asked(self, run: ObservedRun, question: str) -> None:
        """A person is asked for an approval."""
        _APPROVAL.info("%s waits for approval: %s", _named(run), question)

    def approval_answered(self, run: ObservedRun, question: str, choice: Choice) -> None:
        """An approval was answered."""
        _APPROVAL.info("%s approval answered %s: %s", _named(run), choice, question)


def _named(run: ObservedRun) -> str:
    return f"{run.session_id} [{run.label or run.command}]"


def _used(usage: Usage) -> str:
    return f", {used_text(usage)}" if usage.requests else ""
