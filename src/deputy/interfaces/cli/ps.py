"""`deputy ps`: the delegations there are, as a tree."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from deputy.interfaces.cli.journal import open_journal
from deputy.interfaces.cli.show import show, show_json
from deputy.interfaces.numbers import count, elapsed
from deputy.interfaces.plain import one_line

if TYPE_CHECKING:
    from deputy.engine.recover import Standing

_ENDED = 200
_LABEL = 40


@click.command(epilog="\b\nExamples:\n  deputy ps\n  deputy ps --all --json")
@click.option("-a", "--all", "everything", is_flag=True, help="The ended ones too, the latest 200 of them.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(everything: bool, as_json: bool) -> None:
    """Show the delegations that are running, waiting or interrupted."""
    from deputy.journal.registry import entry_form, listed

    now = time.time()
    with open_journal() as reader:
        standings = [] if reader is None else listed(reader, ended=_ENDED if everything else 0)
    if as_json:
        show_json({"delegations": [entry_form(standing, now) for standing in standings]})
    elif standings:
        show(_table([_row(standing, entry_form(standing, now), now) for standing in standings]))
    else:
        click.echo("No delegations." if everything else "No live delegations; --all shows those that ended.", err=True)


_HEADINGS = ("ID", "STATUS", "AGE", "LEFT", "IN", "OUT", "DELEGATION")


def _row(standing: Standing, entry: dict[str, Any], now: float) -> tuple[str, ...]:
    state = standing.state
    deadline = None if state.lineage is None or not state.is_live else state.lineage.deadline
    depth: int = entry["delegation_depth"]
    said = state.label or state.agent
    detail = f": {state.question}" if state.question else ""
    return (
        state.run,
        entry["status"],
        elapsed(now - state.requested_at),
        "-" if deadline is None else ("overdue" if deadline < now else elapsed(deadline - now)),
        count(state.usage.input),
        count(state.usage.output),
        f"{'  ' * depth}{one_line(said + detail, _LABEL)}",
    )


def _table(rows: list[tuple[str, ...]]) -> str:
    lines = [_HEADINGS, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
