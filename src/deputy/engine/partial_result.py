"""The partial result of an interrupted run: a fold of its events."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET, Raw, structs

from deputy.core.errors import UsageError
from deputy.core.events import FellBack, MessageAdded, ModelCallEnded, Noted, StepEnded, ToolCallEnded
from deputy.core.limits import time_is_up
from deputy.core.messages import messages_in
from deputy.core.outcome import Artifact, Partial, shortened
from deputy.core.results import results_markdown
from deputy.core.subtask.context_settings import PassedContext
from deputy.engine.ports import Worktree, WorktreeChanges
from deputy.engine.worktree import place_after, unchanged_worktree, with_work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deputy.core.events import Event
    from deputy.core.outcome import Fallback, Outcome
    from deputy.core.results import Result
    from deputy.core.state import State

    AnyOutcome = TypeVar("AnyOutcome", bound=Outcome)


_HAS_TEXT = b'"type":"text"'


class PartialResult:
    """Folds a run's events into the fields of an outcome."""

    def __init__(self) -> None:
        self._notes: list[str] = []
        self._fallbacks: list[Fallback] = []
        self._changed: dict[str, None] = {}
        self._last_replies: list[ModelCallEnded] = []
        """The last reply with text; replies that were cut off one after another are kept together."""
        self._passed: PassedContext | None = None
        self._place: Worktree | WorktreeChanges | None = None
        self.is_use_unknown = False
        """Whether a model call was cancelled before its usage was reported."""

    def see(self, event: Event) -> None:
        """Fold one event."""
        match event:
            case Noted():
                self._notes.append(event.content)
            case FellBack():
                self._fallbacks.append(event.fallback)
            case ToolCallEnded():
                self._changed.update(dict.fromkeys(event.changed))
            case ModelCallEnded(error=error, usage=usage, message=message):
                is_stopped = error is not None and error.type == "cancelled"
                self.is_use_unknown |= is_stopped and not usage.requests
                if isinstance(message, Raw) and _HAS_TEXT in bytes(message):
                    are_cut = event.is_cut and all(one.is_cut for one in self._last_replies)
                    self._last_replies = [*self._last_replies, event] if are_cut else [event]
            case MessageAdded(passed=PassedContext() as passed):
                self._passed = passed
            case StepEnded():
                self._place = place_after(event, self._place)
            case _:
                return

    @property
    def place(self) -> Worktree | None:
        """The worktree that was not closed."""
        return self._place if isinstance(self._place, Worktree) else None

    def with_place(self, outcome: AnyOutcome) -> AnyOutcome:
        """An outcome with the changes of the worktree."""
        match self._place:
            case Worktree() as place:
                return with_work(outcome, unchanged_worktree(place))
            case WorktreeChanges() as done:
                return with_work(outcome, done)
            case None:
                return outcome

    def fields(self, state: State, now: float) -> dict[str, Any]:
        """The outcome fields from these events."""
        if state.lineage is None:
            raise UsageError("run", state.run, "it must have a start event")
        return {
            "lineage": state.lineage,
            "report": "\n\n".join(map(last_words, self._last_replies)),
            "notes": tuple(self._notes),
            "artifacts": tuple(Artifact(type="file", path=path) for path in self._changed),
            "usage": state.usage,
            "model": state.model or None,
            "backend": state.backend or None,
            "fallbacks": tuple(self._fallbacks),
            "duration_seconds": state.seconds_worked(now),
            "passed": self._passed,
        }


def last_words(event: ModelCallEnded) -> str:
    """The text of a model call."""
    if event.message is UNSET:
        return ""
    return "".join(message.content for message in messages_in(event.message, "assistant"))


def late_ending(
    state: State, events: Iterable[Event], results: Sequence[Result], below: Iterable[State], now: float
) -> Partial:
    """The outcome of an overdue run that its own process did not end."""
    partial = PartialResult()
    for event in events:
        partial.see(event)
    return with_all_below(partial.with_place(stopped_late(partial, state, results, now)), below)


def stopped_late(partial: PartialResult, state: State, results: Sequence[Result], now: float) -> Partial:
    """The outcome at a timeout: what was found so far, or the results of the children."""
    fields = partial.fields(state, now)
    if not fields["report"] and results:
        fields["report"] = results_markdown(results)
    remedy = f"deputy resume {state.run}"
    error = structs.replace(time_is_up(state.seconds), recommendation=f"Use what was found, or continue with: {remedy}")
    summary = shortened(f"{STOPPED_LATE}: {error.message}")
    return Partial(**fields, summary=summary, errors=(error,), next_steps=remedy)


STOPPED_LATE = "Stopped when its time was up"
"""The beginning of the summary at a timeout."""


def with_all_below(outcome: AnyOutcome, below: Iterable[State]) -> AnyOutcome:
    """The outcome with the usage of all descendants added."""
    return structs.replace(outcome, usage=reduce(add, (state.usage for state in below), outcome.usage))
