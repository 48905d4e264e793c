"""What a run that did not get to its own end has to show: notes, usage, its last words."""

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
from deputy.engine.worktree_records import place_after, unchanged_worktree, with_work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deputy.core.events import Event
    from deputy.core.outcome import Fallback, Outcome
    from deputy.core.results import Result
    from deputy.core.state import State

    Told = TypeVar("Told", bound=Outcome)


_HAS_TEXT = b'"type":"text"'


class PartialResult:
    """What a run's events leave behind, gathered as they happen."""

    def __init__(self) -> None:
        self._notes: list[str] = []
        self._fallbacks: list[Fallback] = []
        self._changed: dict[str, None] = {}
        self._last_reply: ModelCallEnded | None = None
        self._passed: PassedContext | None = None
        self._place: Worktree | WorktreeChanges | None = None
        self.is_use_unknown = False
        """Whether a call was stopped before its provider told what it used."""

    def see(self, event: Event) -> None:
        """One more event has happened."""
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
                    self._last_reply = event
            case MessageAdded(passed=PassedContext() as passed):
                self._passed = passed
            case StepEnded():
                self._place = place_after(event, self._place)
            case _:
                return

    @property
    def place(self) -> Worktree | None:
        """The place of the run's own that was not given back."""
        return self._place if isinstance(self._place, Worktree) else None

    def with_place(self, outcome: Told) -> Told:
        """An outcome with what is known of the place of the run's own."""
        match self._place:
            case Worktree() as place:
                return with_work(outcome, unchanged_worktree(place))
            case WorktreeChanges() as done:
                return with_work(outcome, done)
            case None:
                return outcome

    def fields(self, state: State, now: float) -> dict[str, Any]:
        """The fields that an outcome of any kind has from this."""
        if state.lineage is None:
            raise UsageError("run", state.run, "it must begin with what was asked for")
        return {
            "lineage": state.lineage,
            "report": "" if self._last_reply is None else last_words(self._last_reply),
            "notes": tuple(self._notes),
            "artifacts": tuple(Artifact(type="file", path=path) for path in self._changed),
            "usage": state.usage,
            "model": state.model or None,
            "backend": state.backend or None,
            "fallbacks": tuple(self._fallbacks),
            "duration_seconds": max(0.0, now - state.began_clock),
            "passed": self._passed,
        }


def last_words(event: ModelCallEnded) -> str:
    """What the model said in this turn."""
    if event.message is UNSET:
        return ""
    return "".join(message.content for message in messages_in(event.message, "assistant"))


def late_ending(
    state: State, events: Iterable[Event], results: Sequence[Result], below: Iterable[State], now: float
) -> Partial:
    """How a run ends whose time ran out while nobody brought it to its own end."""
    partial = PartialResult()
    for event in events:
        partial.see(event)
    return with_all_below(partial.with_place(stopped_late(partial, state, results, now)), below)


def stopped_late(partial: PartialResult, state: State, results: Sequence[Result], now: float) -> Partial:
    """What was found until a run's time was up, what those below it came to, and the way on."""
    fields = partial.fields(state, now)
    if not fields["report"] and results:
        fields["report"] = results_markdown(results)
    remedy = f"deputy resume {state.run}"
    error = structs.replace(time_is_up(state.seconds), recommendation=f"Use what was found, or go on with: {remedy}")
    summary = shortened(f"{STOPPED_LATE}: {error.message}")
    return Partial(**fields, summary=summary, errors=(error,), next_steps=remedy)


STOPPED_LATE = "Stopped when its time was up"
"""How the summary of such an ending begins."""


def with_all_below(outcome: Told, below: Iterable[State]) -> Told:
    """The outcome with what all runs below used in its usage: what a piece of work took is the whole of it."""
    return structs.replace(outcome, usage=reduce(add, (state.usage for state in below), outcome.usage))
