"""`deputy cancel ID`: stop a run and everything below it, in whichever process it runs."""

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
A blocked run is cancelled too, and its question is dropped. Notes,
transcripts and usage are kept; `deputy resume` continues the run.

\b
Exit codes:
  0 cancelled   1 its process did not respond; the request is recorded
  3 no such run, or it had already ended"""

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
            rest = "; the runs below it are cancelled" if is_stopped else ""
            click.echo(f"deputy: {run} had already ended: {outcome.status}{rest}", err=True)
        if not is_stopped:
            return NOTHING_FOUND
        return CANCELLED if stop.is_set() else 0


def _not_yet(run: str, stop: asyncio.Event) -> int:
    """Print that the run has not ended: its process hangs and still holds the lease."""
    click.echo("deputy: the request to stop is recorded, but the run's process does not respond", err=True)
    click.echo(f"deputy: the run ends when that process continues; else retry later: deputy cancel {run}", err=True)
    return CANCELLED if stop.is_set() else _NOT_YET
