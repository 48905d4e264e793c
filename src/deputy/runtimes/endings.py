"""What a run that did not get to its own end has to show: notes, usage, its last words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, Raw

from deputy.core.errors import LeaseLost, StorageError, UsageError
from deputy.core.events import FellBack, ModelCallEnded, Noted, ToolCallEnded
from deputy.core.messages import messages_in
from deputy.core.outcome import Artifact

if TYPE_CHECKING:
    from deputy.core.events import Event
    from deputy.core.outcome import Fallback
    from deputy.core.state import State


def storage_trouble(error: BaseException) -> LeaseLost | StorageError | None:
    """The trouble with the journal that is in an error, or among those of a group: a lost lease before all else."""
    if isinstance(error, LeaseLost | StorageError):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    group = cast("BaseExceptionGroup[BaseException]", error)
    found = [trouble for inner in group.exceptions if (trouble := storage_trouble(inner)) is not None]
    return next((trouble for trouble in found if isinstance(trouble, LeaseLost)), found[0] if found else None)


_HAS_TEXT = b'"type":"text"'


class SoFar:
    """What a run's events leave behind, gathered as they happen."""

    def __init__(self) -> None:
        self._notes: list[str] = []
        self._fallbacks: list[Fallback] = []
        self._changed: dict[str, None] = {}
        self._said: ModelCallEnded | None = None

    def see(self, event: Event) -> None:
        """One more event has happened."""
        match event:
            case Noted():
                self._notes.append(event.content)
            case FellBack():
                self._fallbacks.append(event.fallback)
            case ToolCallEnded():
                self._changed.update(dict.fromkeys(event.changed))
            case ModelCallEnded(message=Raw() as message) if _HAS_TEXT in bytes(message):
                self._said = event
            case _:
                return

    def fields(self, state: State, now: float) -> dict[str, Any]:
        """The fields that an outcome of any kind has from this."""
        if state.lineage is None:
            raise UsageError("run", state.run, "it must begin with what was asked for")
        began = state.started_at or state.requested_at
        return {
            "lineage": state.lineage,
            "report": "" if self._said is None else last_words(self._said),
            "notes": tuple(self._notes),
            "artifacts": tuple(Artifact(type="file", path=path) for path in self._changed),
            "usage": state.usage,
            "model": state.model or None,
            "backend": state.backend or None,
            "fallbacks": tuple(self._fallbacks),
            "duration_seconds": max(0.0, now - began),
        }


def last_words(event: ModelCallEnded) -> str:
    """What the model said in this turn."""
    if event.message is UNSET:
        return ""
    return "".join(message.content for message in messages_in(event.message, "assistant"))
