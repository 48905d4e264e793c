"""`deputy export ID`: one run as a folder."""

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
The folder holds events.jsonl, outcome.json, transcript.json and .md, and
notes.md; one of each for every run below it in subagents/; and export.json,
which lists them. Only you can read it. Nothing is overwritten.

\b
Exit codes:
  0 exported   2 the folder is there already   3 there is no such run"""


@click.command(epilog=EXAMPLES)
@click.argument("run", metavar="ID")
@click.option("--to", "place", metavar="DIR", help="The folder to make; without it one named like the run, here.")
@click.option("--json", "as_json", is_flag=True, help="Print what export.json says.")
def command(run: str, place: str | None, as_json: bool) -> None:
    """Write a run, and the tree below it, into a folder of its own."""
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
