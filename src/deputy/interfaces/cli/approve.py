"""`deputy approve ID`: say yes or no to what a run waits for, from any terminal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from deputy.core.errors import UnknownRun
from deputy.interfaces.cli.session import NOTHING_FOUND
from deputy.interfaces.cli.show import show_json
from deputy.interfaces.plain import escaped_invisible
from deputy.interfaces.telling import tell

if TYPE_CHECKING:
    from deputy.interfaces.approving import Asking
    from deputy.journal.sqlite import SqliteJournal

EXAMPLES = """\b
Examples:
  deputy ps                                        # what waits, and for what
  deputy approve sess_1763190000_x7k2ab
  deputy approve sess_1763190000_x7k2ab --deny

\b
It works for every run that waits: of `deputy mcp`, of `deputy run`
without a terminal, or asked in another terminal at this moment.
The first answer counts.

\b
Exit codes:
  0 it is answered   3 there is no such run, it does not wait,
  or another answer came first"""

_PATIENCE_SECONDS = 2.0
_LOOK_SECONDS = 0.05


@click.command(epilog=EXAMPLES)
@click.argument("run", metavar="ID")
@click.option("--deny", is_flag=True, help="Say no: nothing is started.")
@click.option("--json", "as_json", is_flag=True, help="Print what was answered as JSON.")
@click.pass_context
def command(ctx: click.Context, run: str, deny: bool, as_json: bool) -> None:
    """Say yes or no to what a run waits for."""
    ctx.exit(asyncio.run(_answer(run, not deny, as_json)))


async def _answer(run: str, is_approved: bool, as_json: bool) -> int:
    from msgspec import json

    from deputy.core.events import APPROVAL
    from deputy.interfaces.answering import answer_key
    from deputy.interfaces.approving import find_asking
    from deputy.journal.home import home_path, make_home
    from deputy.journal.sqlite import SqliteJournal

    async with SqliteJournal(make_home(home_path())) as journal:
        try:
            asking = await find_asking(journal, run)
        except UnknownRun as error:
            click.echo(f"deputy: {tell(error)}", err=True)
            return NOTHING_FOUND
        if asking is None:
            click.echo(f"deputy: {run} does not wait for approval; `deputy ps` shows what does", err=True)
            return NOTHING_FOUND
        if is_approved and asking.is_late(journal.clock.now()):
            click.echo(f"deputy: nobody approved {asking.run} in time: it is refused. Ask for the work anew", err=True)
            is_approved = False
        # Only sent: whoever is at work on the run goes on with it, and not this process.
        is_first = await journal.send(asking.run, APPROVAL, answer_key(asking.key), json.encode(is_approved))
        is_taken = await _is_taken(journal, asking)
    counts = is_approved if is_first else not is_approved
    if as_json:
        show_json({"session_id": asking.run, "approved": counts, "taken": is_taken, "question": asking.question})
    elif is_first:
        click.echo(escaped_invisible(f"{'Approved' if counts else 'Denied'}: {asking.question}"))
    if not is_first:
        told = "approved" if counts else "denied"
        click.echo(f"deputy: another answer came first, and counts: {asking.run} is {told}", err=True)
    if not is_taken:
        click.echo(f"deputy: nobody is at work on it now; go on with `deputy resume {asking.run}`", err=True)
    return 0 if is_first else NOTHING_FOUND


async def _is_taken(journal: SqliteJournal, asking: Asking) -> bool:
    """Whether somebody goes on with the run, for as long as that usually takes."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                state = await journal.state(asking.run)
                if state is None or asking.key not in state.waits:
                    return True
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        return False
