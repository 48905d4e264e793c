"""`deputy todo`: list the open tasks."""

from __future__ import annotations

import click

from deputy.interfaces.cli.commands.task import list_tasks


@click.command(epilog="\b\nExamples:\n  deputy todo\n  deputy todo --all --json")
@click.option("--all", "everything", is_flag=True, help="Also list completed and abandoned tasks.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(everything: bool, as_json: bool) -> None:
    """List the open tasks."""
    list_tasks(everything, as_json)
