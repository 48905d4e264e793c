"""`deputy prune`: remove what ended long ago."""

from __future__ import annotations

import time

import click

from deputy.core.errors import UsageError
from deputy.interfaces.cli.show import show, show_json

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


@click.command(epilog="\b\nExamples:\n  deputy prune --dry-run\n  deputy prune --older-than 12h")
@click.option(
    "--older-than", "age", default="7d", show_default=True, metavar="AGE", help="A number with s, m, h, d or w."
)
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(age: str, dry_run: bool, as_json: bool) -> None:
    """Remove delegations that ended long ago, with their transcripts.

    What is live, waits for an answer or is pinned stays.
    """
    from deputy.core.request import timestamp
    from deputy.journal.home import home_path
    from deputy.journal.retention import prune

    trees = prune(home_path(), time.time() - age_seconds(age), dry_run=dry_run)
    form = [{"session_id": tree.root, "runs": len(tree.states), "last_at": timestamp(tree.last_at)} for tree in trees]
    if as_json:
        show_json({"pruned": form, "dry_run": dry_run})
        return
    for tree in trees:
        show(f"{tree.root}  {_counted(len(tree.states), 'run')}, last {timestamp(tree.last_at)}")
    runs = sum(len(tree.states) for tree in trees)
    told = f"{_counted(runs, 'run')} in {_counted(len(trees), 'tree')}"
    click.echo(f"{'Would remove' if dry_run else 'Removed'} {told}.", err=True)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def age_seconds(text: str) -> float:
    """An age like `7d` in seconds."""
    try:
        # A number alone is refused: seconds would be taken for days, and what is removed does not come back.
        seconds = float(text[:-1]) * _UNITS[text[-1:]]
    except (KeyError, ValueError):
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UsageError("--older-than", text, "give a number with s, m, h, d or w, like 7d")
    return seconds
