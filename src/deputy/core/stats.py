"""How long delegations really take, by command, beside what they may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from deputy.core.limits import WallLimit
    from deputy.core.state import State

SUBAGENT = "subagent"
"""What a task of the Delegate tool counts as: it serves no command of its own."""


class CommandStats(Struct, frozen=True, kw_only=True):
    """The real durations of one command's delegations, in seconds; a limit of None bounds nothing."""

    command: str
    count: int
    timeouts: int
    median_seconds: float
    p95_seconds: float
    default_seconds: float | None
    max_seconds: float | None


def stats_of(states: Iterable[State], limit_of: Callable[[str], WallLimit | None]) -> list[CommandStats]:
    """The statistics of runs that ended, each command once, the most frequent first."""
    durations: dict[str, list[float]] = {}
    timeouts: dict[str, int] = {}
    for state in states:
        # What was refused never ran.
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
    """The value below which so many of the ordered values lie, between two of them where it must be."""
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
