"""`deputy stats`: how long runs take, beside their time limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deputy.interfaces.cli.journal_access import open_journal
from deputy.interfaces.cli.output import fitted, show, show_json
from deputy.interfaces.numbers import elapsed
from deputy.interfaces.text_lines import terminal_width

if TYPE_CHECKING:
    from deputy.core.limits import WallLimit
    from deputy.core.stats import CommandStats

_LOOKED_AT = 10_000

EXAMPLES = f"""\b
Examples:
  deputy stats
  deputy stats --json | jq '.commands[] | select(.timeouts > 0)'

\b
The latest {_LOOKED_AT:,} stored runs that ended are counted; a resumed run counts
with its last round. To change a limit, edit ~/.config/deputy/config.toml:
  [limits.commands.research]
  default = 1800

\b
Exit codes:
  0 also when no run has ended yet   2 usage"""

_HEADINGS = ("COMMAND", "RUNS", "TIMEOUTS", "MEDIAN", "P95", "LIMIT", "MAX")


@click.command(epilog=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Show how long runs take, beside their time limits."""
    from deputy.config import load_effective_settings
    from deputy.core.stats import SUBAGENT, stats_of

    settings = load_effective_settings()

    def limit_of(name: str) -> WallLimit | None:
        # The limit of `delegate` applies to each of its tasks.
        return None if name == "delegate" else settings.limit("delegate" if name == SUBAGENT else name)

    with open_journal() as reader:
        stats = [] if reader is None else stats_of(reader.ended(_LOOKED_AT), limit_of)
    if as_json:
        show_json({"commands": stats})
    elif stats:
        show(_table([_HEADINGS, *map(_row, stats)]))
    else:
        click.echo("No run has ended yet.", err=True)


def _row(stats: CommandStats) -> tuple[str, ...]:
    limits = (stats.default_seconds, stats.max_seconds)
    return (
        stats.command,
        str(stats.count),
        str(stats.timeouts),
        elapsed(stats.median_seconds),
        elapsed(stats.p95_seconds),
        *("-" if seconds is None else elapsed(seconds) for seconds in limits),
    )


def _table(lines: list[tuple[str, ...]]) -> str:
    """A table; on a narrow terminal one line per command with named numbers."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > terminal_width():
        _, *names = (name.lower() for name in lines[0])
        return "\n".join(
            fitted(f"{command}: {', '.join(f'{name} {cell}' for name, cell in zip(names, cells, strict=True))}")
            for command, *cells in lines[1:]
        )
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
