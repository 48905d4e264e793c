"""`deputy transcript ID`: print the conversation of a subagent."""

from __future__ import annotations

import click

from deputy.interfaces.cli.journal_access import not_found, open_journal
from deputy.interfaces.cli.output import show, show_json


@click.command(
    epilog="\b\nExamples:\n  deputy transcript sess_1763190000_x7k2ab"
    "\n  deputy transcript --json sess_1763190000_x7k2ab"
)
@click.argument("run", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print the form of the transcript file.")
def command(run: str, as_json: bool) -> None:
    """Show the conversation of a subagent.

    It is printed as Markdown, also while the subagent runs or after it was killed.
    """
    from deputy.journal.transcript import markdown, transcribe

    with open_journal() as reader:
        transcript = None if reader is None else transcribe(reader.records(run))
    if transcript is None:
        not_found(run)
    if transcript.damaged:
        click.echo(f"deputy: {len(transcript.damaged)} damaged records were left out", err=True)
    if as_json:
        show_json(transcript)
    else:
        show(markdown(transcript))
