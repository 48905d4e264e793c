"""What a run that did not get to its own end has to show: notes, usage, its last words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from deputy.core.errors import UsageError
from deputy.core.events import FellBack, ModelCallEnded, Noted
from deputy.core.messages import messages_in
from deputy.core.state import State, apply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.events import Record


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
