"""Whether something may be done that needs approval: as it was decided before, else as whoever is at work says now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from deputy.engine.desk import Approval
    from deputy.engine.ports import RunContext
    from deputy.engine.talk import Talk

Decision: TypeAlias = Literal["granted", "ask", "nobody"]
"""It may be; a person says so, now or on record; or there is nobody to ask."""


def decided(run: RunContext, key: str, approval: Approval, *, begun: str, ended: tuple[str, ...]) -> Decision:
    """How a request is decided: what was before a crash counts, whoever goes on, and only what is new is decided now.

    `begun` is the first record of what needs approval, `ended` what there is once the request is over.
    """
    if run.was_asked(key):
        return "ask"
    if run.was_reached(begun):
        return "granted"
    if any(map(run.was_reached, ended)) or approval == "refuse":
        return "nobody"
    return approval


_UNASKED = " was refused: it needs approval, and nobody could be asked."
_MOST_TOLD = 20


def tell_refused(talk: Talk | None, what: str) -> None:
    """Have the outcome say, once, what was not done because nobody could be asked."""
    warning = f"{what}{_UNASKED}"
    if talk is None or warning in talk.warnings:
        return
    if sum(map(is_refused_unasked, talk.warnings)) < _MOST_TOLD:
        talk.warnings += (warning,)


def is_refused_unasked(warning: str) -> bool:
    """Whether a warning says that something was refused because nobody could be asked."""
    return warning.endswith(_UNASKED)
