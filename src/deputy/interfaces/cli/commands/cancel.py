"""`deputy cancel ID`: stop a run and everything below it, wherever it is at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deputy.core.errors import UnknownRun
from deputy.engine.call import DELEGATE
from deputy.interfaces.cli.outcome_output import show_outcome
from deputy.interfaces.cli.runner import CANCELLED, NOTHING_FOUND, run_command, until_done
from deputy.interfaces.safe_text import print_error

if TYPE_CHECKING:
    import asyncio

EXAMPLES = """\b
Examples:
  deputy cancel sess_1763190000_x7k2ab

\b
Also one that is blocked: its question is dropped. Notes, transcripts and
usage are kept, and `deputy resume` goes on with it.

\b
Exit codes:
  0 it is cancelled   3 there is no such run, or it had ended
  1 it is asked to stop, and whoever is at work on it does not answer"""

_PATIENCE_SECONDS = 10.0
_NOT_YET = 1


@click.command(epilog=EXAMPLES)
@click.argument("run", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@click.pass_context
def command(ctx: click.Context, run: str, as_json: bool) -> None:
    """Stop a run and everything below it."""
    ctx.exit(run_command(lambda stop: _cancel(run, as_json, stop)))


async def _cancel(run: str, as_json: bool, stop: asyncio.Event) -> int:
    from asyncio import timeout

    from deputy.client import Deputy
    from deputy.interfaces.fanout_results import brought_up_to_date

    async with Deputy(approval="refuse") as deputy:
        try:
            state = await deputy.state(run)
        except UnknownRun as error:
            click.echo(f"deputy: {print_error(error)}", err=True)
            return NOTHING_FOUND
        is_stopped = await deputy.cancel(run)
        try:
            async with timeout(_PATIENCE_SECONDS):
                outcome = await until_done(deputy.outcome(run), stop, lambda: deputy.cancel(run))
                if is_stopped:
                    await deputy.wait_until_finished(run)
        except TimeoutError:
            outcome = None
        if outcome is None:
            return _not_yet(run, stop)
        results = await deputy.results(run) if state.command == DELEGATE else ()
        show_outcome(brought_up_to_date(outcome, results), as_json=as_json, results=results)
        if outcome.status != "cancelled" or not is_stopped:
            rest = "; what was left below it is cancelled" if is_stopped else ""
            click.echo(f"deputy: it had ended before: {outcome.status}{rest}", err=True)
        if not is_stopped:
            return NOTHING_FOUND
        return CANCELLED if stop.is_set() else 0


def _not_yet(run: str, stop: asyncio.Event) -> int:
    """Say that it is not over: a process that stands still holds it, until it has been silent for too long."""
    text = "it is asked to stop, and that is recorded, but the process at work on it does not answer"
    click.echo(f"deputy: {text}; it stops when that process goes on (`deputy ps` shows it)", err=True)
    click.echo(f"deputy: when it stays silent, this ends it a little later: deputy cancel {run}", err=True)
    return CANCELLED if stop.is_set() else _NOT_YET
