"""How a run's outcome is shown: its report for people, all of it for programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from deputy.interfaces.cli.show import show_json
from deputy.interfaces.plain import plain

if TYPE_CHECKING:
    from deputy.core.outcome import Outcome


def show_outcome(outcome: Outcome, *, as_json: bool, is_told: bool = False) -> None:
    """The report on standard output, unless it was told already; how it ended on standard error."""
    if as_json:
        from deputy.core.forms import outcome_form

        show_json(outcome_form(outcome))
        return
    if outcome.report and not is_told:
        from deputy.interfaces.view.painters import show_markdown

        show_markdown(outcome.report if outcome.report.endswith("\n") else f"{outcome.report}\n")
    for line in _ending(outcome):
        click.echo(plain(line), err=True)


def _ending(outcome: Outcome) -> list[str]:
    from deputy.interfaces.numbers import dollars, elapsed, tokens

    usage = outcome.usage
    seconds = elapsed(outcome.duration_seconds)
    used = " · ".join(filter(None, (tokens(usage.input, usage.output), dollars(usage.cost), seconds)))
    if outcome.status == "completed":
        return [f"{outcome.session_id} completed · {used}"] if sys.stderr.isatty() else []
    lines = [f"{outcome.session_id} {outcome.status} · {used}"]
    lines += [f"deputy: {error.message} {error.recommendation}".rstrip() for error in outcome.errors[:3]]
    if outcome.next_steps and not any(outcome.next_steps in line for line in lines):
        lines.append(f"next: {outcome.next_steps}")
    return lines
