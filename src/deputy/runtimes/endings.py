"""Runs that do not get to their own end: what kept them from it, and what they have to show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET

from deputy.core.errors import LeaseLost, StorageError, UsageError
from deputy.core.events import FellBack, ModelCallEnded, Noted
from deputy.core.messages import messages_in
from deputy.core.state import State, apply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.events import Record


def storage_trouble(error: BaseException) -> LeaseLost | StorageError | None:
    """The trouble with the journal that is in an error, or among those of a group: a lost lease before all else."""
    if isinstance(error, LeaseLost | StorageError):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    group = cast("BaseExceptionGroup[BaseException]", error)
    found = [trouble for inner in group.exceptions if (trouble := storage_trouble(inner)) is not None]
    return next((trouble for trouble in found if isinstance(trouble, LeaseLost)), found[0] if found else None)


def found_so_far(records: Sequence[Record], now: float) -> dict[str, Any]:
    """The fields that an outcome of any kind has from these records."""
    state = State()
    notes: list[str] = []
    fallbacks: list[Any] = []
    report = ""
    for record in records:
        state = apply(state, record)
        match record.event:
            case Noted():
                notes.append(record.event.content)
            case FellBack():
                fallbacks.append(record.event.fallback)
            case ModelCallEnded():
                report = last_words(record.event) or report
            case _:
                continue
    if state.lineage is None:
        raise UsageError("records", len(records), "they must begin with what was asked for")
    began = state.started_at or state.requested_at
    return {
        "lineage": state.lineage,
        "report": report,
        "notes": tuple(notes),
        "usage": state.usage,
        "model": state.model or None,
        "backend": state.backend or None,
        "fallbacks": tuple(fallbacks),
        "duration_seconds": max(0.0, now - began),
    }


def last_words(event: ModelCallEnded) -> str:
    """What the model said in this turn."""
    if event.message is UNSET:
        return ""
    return "".join(message.content for message in messages_in(event.message, "assistant"))
