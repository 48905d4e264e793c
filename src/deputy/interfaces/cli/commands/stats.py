"""`deputy stats`: what runs took and cost, by command, model, agent or day."""

from __future__ import annotations

import sys
from functools import reduce
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

import click
from msgspec import Struct, structs

from deputy.core.limits import added, cost_text
from deputy.core.request import timestamp
from deputy.interfaces.cli.console import Console, fitted, note, open_journal, with_console
from deputy.interfaces.text_lines import count, elapsed, one_line, terminal_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deputy.core.effective_settings import EffectiveSettings
    from deputy.core.state import State

_LOOKED_AT = 10_000
_NAME_WIDTH = 40
_BAR_WIDTH = 50

EXAMPLES = f"""\b
Examples:
  deputy stats
  deputy stats --by model
  deputy stats --by day --json | jq '.stats[] | {{name, cost}}'

\b
The latest {_LOOKED_AT:,} stored runs that ended are counted, each with its own
tokens and cost, without those of its subagents; a resumed run counts with the
time and the timeouts of all its rounds. EACH is the median cost of a run.
`+ ?` means that the cost of some runs is unknown. At a terminal bars compare
the costs, or the tokens where no cost is known. To change a limit, edit
~/.config/deputy/config.toml:
  [limits.commands.research]
  default = 1800

\b
Exit codes:
  0 also when no run has ended yet   2 usage"""

SUBAGENT = "subagent"
"""The command name for tasks of the Delegate tool."""

By: TypeAlias = Literal["command", "model", "agent", "day"]


class RunStats(Struct, frozen=True, kw_only=True):
    """Durations in seconds, tokens, and cost in dollars of the runs of one name."""

    name: str
    count: int
    timeouts: int
    median_seconds: float
    p95_seconds: float
    input: int
    output: int
    cost: float | None
    """The sum of the known costs; null if none is known."""
    median_cost: float | None
    unknown_costs: int
    """The number of runs whose cost is unknown."""
    default_seconds: float | None = None
    """The time limit of a command, and its maximum."""
    max_seconds: float | None = None


@click.command(epilog=EXAMPLES)
@click.option(
    "--by",
    type=click.Choice(["command", "model", "agent", "day"]),
    default="command",
    show_default=True,
    help="One line for each.",
)
@with_console()
def command(console: Console, by: By) -> None:
    """Show time, tokens and cost of runs, and time limits."""
    from deputy.config import load_effective_settings

    with open_journal() as queries:
        states = [] if queries is None else queries.ended(_LOOKED_AT)
    found, total = stats_of(states, by)
    if by == "command":
        settings = load_effective_settings()
        found = [_with_limit(one, settings) for one in found]
    if found or console.as_json:
        lines = [_headings(by), *(_row(one, by) for one in [*found, *([total] if len(found) > 1 and total else [])])]
        bars = _bars(found) if sys.stdout.isatty() else ""
        console.show({"by": by, "stats": found, "total": total}, _table(lines) + bars)
    else:
        note("No run has ended yet.")


def stats_of(states: Iterable[State], by: By) -> tuple[list[RunStats], RunStats | None]:
    """The statistics of ended runs by name, the most frequent first (days: the latest first), and of all of them."""
    groups: dict[str, list[State]] = {}
    for state in states:
        # A rejected run never ran.
        if state.ended_clock is not None and state.status != "rejected" and (name := _name(state, by)):
            groups.setdefault(name, []).append(state)
    if by == "day":
        ordered = sorted(groups, reverse=True)
    else:
        ordered = sorted(groups, key=lambda name: (-len(groups[name]), name))
    counted = [state for name in ordered for state in groups[name]]
    return [_stats(name, groups[name]) for name in ordered], _stats("total", counted) if counted else None


def _name(state: State, by: By) -> str:
    """The group of a run; empty if it is in none."""
    match by:
        case "command":
            return state.command or SUBAGENT
        case "model":
            return state.model if state.usage.requests else ""
        case "agent":
            # A call only collects the results of its subagents.
            is_call = state.command == "delegate"
            return "" if is_call else "no agent" if state.agent.startswith("task:") else state.agent
        case "day":
            return timestamp(state.ended_at or state.last_at)[:10]
        case _:
            assert_never(by)


def _stats(name: str, states: Sequence[State]) -> RunStats:
    taken = sorted(state.seconds_worked(0.0) for state in states)
    usages = [state.usage for state in states if state.usage.requests]
    costs = [usage.cost for usage in usages if usage.cost is not None]
    is_known = bool(costs) or not usages
    return RunStats(
        name=name,
        count=len(states),
        timeouts=sum(state.counts.timeouts for state in states),
        median_seconds=round(_percentile(taken, 50), 3),
        p95_seconds=round(_percentile(taken, 95), 3),
        input=sum(usage.input for usage in usages),
        output=sum(usage.output for usage in usages),
        cost=reduce(added, costs, 0.0) if is_known else None,
        median_cost=round(median(costs), 9) if costs else None,
        unknown_costs=len(usages) - len(costs),
    )


def _with_limit(stats: RunStats, settings: EffectiveSettings) -> RunStats:
    # The limit of `delegate` applies to each of its tasks.
    named = "delegate" if stats.name == SUBAGENT else stats.name
    limit = None if stats.name == "delegate" else settings.limit(named)
    if limit is None:
        return stats
    return structs.replace(stats, default_seconds=limit.default_seconds, max_seconds=limit.max_seconds)


def _percentile(ordered: list[float], percent: float) -> float:
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _headings(by: By) -> tuple[str, ...]:
    times, costs = ("P95", "LIMIT", "MAX"), ("EACH",)
    is_limited = by == "command"
    return (
        by.upper(),
        "RUNS",
        "TIMEOUTS",
        "MEDIAN",
        *times[: 3 * is_limited],
        "IN",
        "OUT",
        "COST",
        *costs[is_limited:],
    )


def _row(stats: RunStats, by: By) -> tuple[str, ...]:
    times = (stats.p95_seconds, stats.default_seconds, stats.max_seconds) if by == "command" else ()
    is_used = bool(stats.input or stats.output)
    cost = cost_text(stats.cost or None if stats.unknown_costs else stats.cost) if is_used else "-"
    each = cost_text(stats.median_cost or None if stats.unknown_costs else stats.median_cost) if is_used else "-"
    return (
        one_line(stats.name, _NAME_WIDTH),
        str(stats.count),
        str(stats.timeouts),
        elapsed(stats.median_seconds),
        *("-" if seconds is None else elapsed(seconds) for seconds in times),
        count(stats.input),
        count(stats.output),
        f"{cost} + ?" if stats.unknown_costs and stats.cost else cost,
        *(() if by == "command" else (each,)),
    )


def _bars(found: Sequence[RunStats]) -> str:
    """A bar for each name: its share of the known cost, else of the tokens; empty if there is nothing to compare."""
    has_cost = any(one.cost for one in found)
    used = {one.name: (one.cost or 0.0) if has_cost else float(one.input + one.output) for one in found}
    amounts = [amount for amount in used.values() if amount]
    if len(amounts) < 2:
        return ""
    names = [one_line(name, _NAME_WIDTH) for name, amount in used.items() if amount]
    values = [cost_text(amount) if has_cost else count(round(amount)) for amount in amounts]
    widest, longest = max(map(len, names)), max(map(len, values))
    room = max(1, min(_BAR_WIDTH, terminal_width() - widest - longest - 4))
    lines = [
        f"{name:<{widest}}  {value:>{longest}}  {bar(amount / max(amounts), room)}".rstrip()
        for name, value, amount in zip(names, values, amounts, strict=True)
    ]
    return "\n".join(["", "", "COST" if has_cost else "TOKENS", *lines])


def bar(share: float, width: int) -> str:
    """A bar of eighths of a column; anything above nothing is seen."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _table(lines: list[tuple[str, ...]]) -> str:
    """A table; on a narrow terminal one line per name with named numbers."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > terminal_width():
        _, *names = (name.lower() for name in lines[0])
        return "\n".join(
            fitted(f"{name}: {', '.join(f'{heading} {cell}' for heading, cell in zip(names, cells, strict=True))}")
            for name, *cells in lines[1:]
        )
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
