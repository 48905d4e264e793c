"""`deputy pin ID`: protect a run from pruning."""

from __future__ import annotations

import click

from deputy.core.errors import UnknownRun
from deputy.interfaces.cli.journal_access import not_found
from deputy.interfaces.cli.output import show, show_json


@click.command(epilog="\b\nExamples:\n  deputy pin sess_1763190000_x7k2ab\n  deputy pin --off sess_1763190000_x7k2ab")
@click.argument("run", metavar="ID")
@click.option("--off", is_flag=True, help="Remove the pin.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str, off: bool, as_json: bool) -> None:
    """Protect a run and its tree from pruning."""
    from deputy.journal.home import home_path
    from deputy.journal.retention import pin

    try:
        pin(home_path(), run, pinned=not off)
    except UnknownRun:
        not_found(run)
    if as_json:
        show_json({"session_id": run, "pinned": not off})
    else:
        show(f"{run} is {'no longer pinned' if off else 'pinned'}.")
