"""What can go wrong: errors as values that travel in outcomes, and the exceptions of this project.

DeputyError                 everything this project raises on purpose
└── UsageError              the user or caller misused us; raised before any side effect
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType, structs

if TYPE_CHECKING:
    from collections.abc import Sequence


class DeputyError(Exception):
    """Everything this project raises on purpose."""


class UsageError(DeputyError):
    """The user or caller misused us: names the field, the value found and what would be right."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        self.field = field
        self.found = found
        self.expected = expected
        super().__init__(f"{field}: found {_shown(found)}; {expected}")


class Error(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as a value: what went wrong, whether it can be recovered from, and what to do about it."""

    type: str
    message: str
    recoverable: bool
    recommendation: str
    code: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    """The delegation it comes from, when it was passed up from a child."""


def passed_up(errors: Sequence[Error], session_id: str) -> tuple[Error, ...]:
    """A child's errors as its caller sees them: each names the delegation it first came from."""
    return tuple(e if e.session_id is not UNSET else structs.replace(e, session_id=session_id) for e in errors)


def advice(errors: Sequence[Error]) -> str:
    """What to do about these errors: the first recovery instruction, or that a person must act, and why."""
    final = next((error for error in errors if not error.recoverable), None)
    if final is not None:
        return f"A person must act: {final.message} {final.recommendation}".rstrip()
    return errors[0].recommendation if errors else ""


def _shown(value: object, limit: int = 80) -> str:
    """A value as an error message quotes it: on one line, cut when it is long."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
