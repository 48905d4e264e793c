"""Errors for reached limits, and the reason that the subagent reads in its final turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.errors import Error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.core.limits import Resource

_TO_THE_SUBAGENT: Mapping[str, str] = {
    "timeout": "Your time limit is nearly reached.",
    "context_exhausted": "Your context is full.",
    "budget": "Your budget is nearly spent.",
    "repetition": "You repeated the same call with the same result.",
}


def time_is_up(seconds: float | None) -> Error:
    """The time limit was reached; None if the task has only the rest of its caller's time."""
    limit = "inherited from the caller" if seconds is None else f"of {seconds:g} s"
    return _reached("timeout", "TIMEOUT", f"The time limit {limit} was reached.")


def context_is_full(window: int) -> Error:
    """The context window is full."""
    return _reached("context_exhausted", "CONTEXT_EXHAUSTED", f"The context of {window:,} tokens is full.")


WARN_SHARE = 0.8


def nearly_full(tokens: int, window: int) -> str:
    """A warning once most of the context window is used, else ""."""
    share = tokens / window
    return f"{share:.0%} of a context of {window:,} tokens is used." if share >= WARN_SHARE else ""


def budget_is_spent(resource: Resource, cap: int) -> Error:
    """The budget has only enough left for the final turn."""
    return _reached("budget", "BUDGET_SPENT", f"The budget of {priced(resource, cap)} is spent.")


def repeats_itself(times: int) -> Error:
    """The same call had the same result too often."""
    return _reached("repetition", "REPETITION", f"The same call had the same result {times} times.")


def final_turn_message(limit: Error) -> str:
    """The reason for the final turn, for the subagent."""
    return _TO_THE_SUBAGENT.get(limit.type, "A limit is reached.")


def priced(resource: Resource, count: int) -> str:
    """An amount of a resource as text."""
    return f"${count / 1e9:.4g}" if resource == "cost" else f"{count:,} {resource}"


def _reached(kind: str, code: str, message: str) -> Error:
    recommendation = "Use the results so far, or resume it with a higher limit."
    return Error(type=kind, code=code, message=message, recoverable=True, recommendation=recommendation)
