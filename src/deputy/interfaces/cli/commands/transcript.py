"""`deputy transcript ID`: what a subagent and its model said, at any moment of the run."""

from __future__ import annotations

import click

from deputy.interfaces.cli.journal_access import not_found, open_journal
from deputy.interfaces.cli.output import show, show_json


@click.command(
    epilog="\b\nExamples:\n  deputy transcript sess_1763190000_x7k2ab"
    "\n  deputy transcript --json sess_1763190000_x7k2ab"
)
@click.argument("run", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="The form that is also left as a file.")
def command(run: str, as_json: bool) -> None:
    """Show a subagent's conversation.

    As Markdown, at any moment: also of one that runs or was killed.
    """
    from deputy.journal.transcript import markdown, transcribe

    with open_journal() as reader:
        transcript = None if reader is None else transcribe(reader.records(run))
    if transcript is None:
        not_found(run)
    if transcript.damaged:
        click.echo(f"deputy: {len(transcript.damaged)} damaged places were left out", err=True)
    if as_json:
        show_json(transcript)
    else:
        show(markdown(transcript))
