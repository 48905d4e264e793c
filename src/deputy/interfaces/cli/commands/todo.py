"""`deputy todo`: the tasks that are not over."""

from __future__ import annotations

import click

from deputy.interfaces.cli.commands.task import list_tasks


@click.command(epilog="\b\nExamples:\n  deputy todo\n  deputy todo --all --json")
@click.option("--all", "everything", is_flag=True, help="Completed and abandoned ones too.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(everything: bool, as_json: bool) -> None:
    """Show the tasks of this project that are not over."""
    list_tasks(everything, as_json)
