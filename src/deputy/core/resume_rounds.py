"""Which resume rounds started; messages of the other rounds are ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, json

from deputy.core.approval import read_decision
from deputy.core.errors import Error
from deputy.core.events import QuestionAnswered, QuestionAsked, Resumed, StepEnded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deputy.core.events import Record

RESUME_APPROVAL = "resume:approval"
"""The key of a round's approval."""
CLAIM = "claim"
"""The key under which a round claims its project task."""


def prefix(number: int) -> str:
    """The key prefix of a round; the first round has none."""
    return f"round:{number}/" if number else ""


def why_not_claimed(records: Iterable[Record], number: int) -> Error | None:
    """Why a round could not claim its project task; None if it could, or has none."""
    key = f"{prefix(number)}{CLAIM}"
    for record in records:
        if record.key == key and isinstance(record.event, StepEnded) and record.event.result is not UNSET:
            return json.decode(record.event.result, type=Error | None)
    return None


def not_begun(records: Iterable[Record]) -> frozenset[int]:
    """The rounds without an approval, and those that could not claim their project task."""
    kept_out: set[int] = set()
    number = 0
    digest = ""
    for record in records:
        match record.event:
            case Resumed(round=number, request=request):
                if request is not None:
                    kept_out.add(number)
            case QuestionAsked(digest=asked) if number and record.key.startswith(f"{prefix(number)}{RESUME_APPROVAL}"):
                digest = asked
            case QuestionAnswered(body=body) if number and record.key == f"{prefix(number)}{RESUME_APPROVAL}":
                if read_decision(body, digest) != "no":
                    kept_out.discard(number)
            case StepEnded(result=result) if number and record.key == f"{prefix(number)}{CLAIM}":
                if result is UNSET or json.decode(result) is not None:
                    kept_out.add(number)
            case _:
                continue
    return frozenset(kept_out)
