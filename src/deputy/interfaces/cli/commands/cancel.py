"""`deputy cancel ID`: stop a run and everything below it, in whichever process it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deputy.engine.call import DELEGATE
from deputy.interfaces.cli.console import CANCELLED, NOTHING_FOUND, Console, run_argument, warn, with_console
from deputy.interfaces.cli.outcome_output import show_outcome
from deputy.interfaces.cli.runner import run_command, until_done

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

_MAX_WAIT_SECONDS = 10.0
_NOT_YET = 1


@click.command(epilog=EXAMPLES)
@run_argument()
@with_console("Print the outcome as JSON.")
def command(console: Console, run: str) -> int:
    """Stop a run and everything below it."""
    return run_command(lambda stop: _cancel(console, run, stop))


async def _cancel(console: Console, run: str, stop: asyncio.Event) -> int:
    from asyncio import timeout

    from deputy.client import Deputy
    from deputy.interfaces.call_results import brought_up_to_date

    async with Deputy(approval="refuse") as deputy:
        state = await deputy.state(run)
        is_stopped = await deputy.cancel(run)
        if not is_stopped and not state.is_live and not console.as_json:
            warn(f"{run} had already ended: {state.status}. Its page: deputy show {run}")
            return NOTHING_FOUND
        try:
            async with timeout(_MAX_WAIT_SECONDS):
                outcome = await until_done(deputy.outcome(run), stop, lambda: deputy.cancel(run))
                if is_stopped:
                    await deputy.wait_until_finished(run)
        except TimeoutError:
            outcome = None
        if outcome is None:
            # Its process hangs and still holds the lease.
            warn("the request to stop is recorded, but the run's process does not respond")
            warn(f"the run ends when that process continues; else retry later: deputy cancel {run}")
            return CANCELLED if stop.is_set() else _NOT_YET
        results = await deputy.results(run) if state.command == DELEGATE else ()
        show_outcome(brought_up_to_date(outcome, results), as_json=console.as_json, results=results)
        if outcome.status != "cancelled" or not is_stopped:
            rest = "; the runs below it are cancelled" if is_stopped else ""
            warn(f"{run} had already ended: {outcome.status}{rest}")
        if not is_stopped:
            return NOTHING_FOUND
        return CANCELLED if stop.is_set() else 0
