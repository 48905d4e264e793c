"""The advice about errors: what to do next, from the cause that is nearest to the user's own choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from deputy.core.errors import MANUAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.errors import Error


def remedy(errors: Sequence[Error]) -> str:
    """What to do about these errors: the first recommendation, or why a person must act."""
    final = unrecoverable(errors)
    if final is not None:
        advice = final.recommendation.removeprefix(MANUAL)
        return f"{MANUAL}{in_sentences(final.message, advice)}" if advice != final.message else final.recommendation
    return errors[0].recommendation if errors else ""


def in_sentences(message: str, advice: str) -> str:
    """A message and the advice after it; the message of a provider may lack its full stop."""
    return f"{message}{'' if message.endswith(('.', '!', '?')) or not advice else '.'} {advice}".rstrip()


def unrecoverable(errors: Sequence[Error]) -> Error | None:
    """The first error that needs a person; those of fallbacks do not, since the first candidate was chosen."""
    return next((error for error in errors if not error.recoverable and error.candidate is UNSET), None)
