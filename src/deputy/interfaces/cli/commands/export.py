"""`deputy export ID`: write a run and its tree to a folder."""

from __future__ import annotations

import time
from pathlib import Path

import click

from deputy.interfaces.cli.journal_access import not_found, open_journal
from deputy.interfaces.cli.output import show, show_json

EXAMPLES = """\b
Examples:
  deputy export sess_1763190000_x7k2ab
  deputy export sess_1763190000_x7k2ab --to ../login-review

\b
The folder gets events.jsonl, outcome.json, transcript.json, transcript.md
and notes.md, the same files for each run below it in subagents/, and
export.json, which lists them. Only you can read it. Nothing is overwritten.

\b
Exit codes:
  0 exported   2 the folder already exists   3 no such run"""


@click.command(epilog=EXAMPLES)
@click.argument("run", metavar="ID")
@click.option("--to", "place", metavar="DIR", help="The new folder; by default ./ID.")
@click.option("--json", "as_json", is_flag=True, help="Print the content of export.json.")
def command(run: str, place: str | None, as_json: bool) -> None:
    """Write a run and its tree to a folder."""
    from deputy.journal.export import export
    from deputy.journal.transcript import safe_id

    folder = Path(place if place is not None else safe_id(run))
    with open_journal() as reader:
        state = None if reader is None else reader.state(run)
        if reader is None or state is None:
            not_found(run)
        text = export(reader, state, folder, time.time())
    if as_json:
        show_json({"folder": str(folder), **text})
        return
    count = len(text["runs"])
    show(f"{folder}: {count} run{'s' * (count != 1)}")
