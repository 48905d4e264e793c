"""Durations of delegations by command, with their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from deputy.core.limits import WallLimit
    from deputy.core.state import State

SUBAGENT = "subagent"
"""The command name for tasks of the Delegate tool."""


class CommandStats(Struct, frozen=True, kw_only=True):
    """The durations of one command's delegations in seconds; None means no limit."""

    command: str
    count: int
    timeouts: int
    median_seconds: float
    p95_seconds: float
    default_seconds: float | None
    max_seconds: float | None


def stats_of(states: Iterable[State], limit_of: Callable[[str], WallLimit | None]) -> list[CommandStats]:
    """The statistics of ended runs by command, the most frequent first."""
    durations: dict[str, list[float]] = {}
    timeouts: dict[str, int] = {}
    for state in states:
        # A rejected run never ran.
        if state.ended_clock is None or state.status == "rejected":
            continue
        command = state.command or SUBAGENT
        durations.setdefault(command, []).append(max(0.0, state.ended_clock - state.began_clock))
        timeouts[command] = timeouts.get(command, 0) + (state.reason == "timeout")
    ordered = sorted(durations, key=lambda command: (-len(durations[command]), command))
    return [_stats(command, durations[command], timeouts[command], limit_of(command)) for command in ordered]


def _stats(command: str, durations: list[float], timeouts: int, limit: WallLimit | None) -> CommandStats:
    ordered = sorted(durations)
    return CommandStats(
        command=command,
        count=len(ordered),
        timeouts=timeouts,
        median_seconds=round(percentile(ordered, 50), 3),
        p95_seconds=round(percentile(ordered, 95), 3),
        default_seconds=None if limit is None else limit.default_seconds,
        max_seconds=None if limit is None else limit.max_seconds,
    )


def percentile(ordered: list[float], percent: float) -> float:
    """The percentile of ordered values, interpolated between two of them."""
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
