"""Limits that were reached: the error for whoever asked, and other words for the subagent that must hand in."""

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
    "repetition": "You made the same call with the same result again and again.",
}


def time_is_up(seconds: float | None) -> Error:
    """The task's time limit was reached; None where it has only what its caller left it."""
    limit = "that its caller left it" if seconds is None else f"of {seconds:g} s"
    return _reached("timeout", "TIMEOUT", f"The time limit {limit} was reached.")


def context_is_full(window: int) -> Error:
    """The model's window is full."""
    return _reached("context_exhausted", "CONTEXT_EXHAUSTED", f"The context of {window:,} tokens is full.")


WARN_SHARE = 0.8


def nearly_full(tokens: int, window: int) -> str:
    """What is told when most of a window is used; nothing before."""
    share = tokens / window
    return f"{share:.0%} of a context of {window:,} tokens is used." if share >= WARN_SHARE else ""


def budget_is_spent(resource: Resource, cap: int) -> Error:
    """There is no more left of a budget than its last turn needs."""
    return _reached("budget", "BUDGET_SPENT", f"The budget of {priced(resource, cap)} is spent.")


def repeats_itself(times: int) -> Error:
    """The same call had the same result too often."""
    return _reached("repetition", "REPETITION", f"The same call had the same result {times} times.")


def final_turn_message(limit: Error) -> str:
    """Why it must hand in, as the subagent is told."""
    return _TO_THE_SUBAGENT.get(limit.type, "A limit is reached.")


def priced(resource: Resource, count: int) -> str:
    """So much of a resource, in words."""
    return f"${count / 1e9:.4g}" if resource == "cost" else f"{count:,} {resource}"


def _reached(kind: str, code: str, message: str) -> Error:
    recommendation = "Use what was found, or resume it with more room."
    return Error(type=kind, code=code, message=message, recoverable=True, recommendation=recommendation)
