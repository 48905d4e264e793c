"""`deputy prune`: remove old runs with their transcripts and worktrees."""

from __future__ import annotations

import os
import time

import click

from deputy.core.errors import UsageError
from deputy.interfaces.cli.output import show, show_json

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


@click.command(epilog="\b\nExamples:\n  deputy prune --dry-run\n  deputy prune --older-than 12h")
@click.option(
    "--older-than", "age", default="7d", show_default=True, metavar="AGE", help="A number and s, m, h, d or w."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--with-work", is_flag=True, help="Also remove worktrees with uncommitted work.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(age: str, dry_run: bool, with_work: bool, as_json: bool) -> None:
    """Remove old runs with their transcripts and worktrees.

    Kept are runs that are active, wait for an answer or are pinned, worktrees with uncommitted or ignored files, and
    all branches.
    """
    from deputy.core.request import timestamp
    from deputy.journal.home import home_path
    from deputy.journal.retention import prune
    from deputy.journal.run_worktrees import orphaned_worktrees, remove_worktree
    from deputy.tools.git_worktrees import WorktreeCleanup

    home, worktrees = home_path(), WorktreeCleanup(os.environ)
    before = time.time() - age_seconds(age)
    trees = prune(home, before, dry_run=dry_run, worktrees=worktrees)
    holding: list[str] = []
    for place in orphaned_worktrees(home, before, [state.run for tree in trees for state in tree.states]):
        is_work = worktrees.holds_work(place)
        if is_work:
            holding.append(str(place))
        if not dry_run and (with_work or not is_work):
            remove_worktree(place, worktrees)
    form = [{"session_id": tree.root, "runs": len(tree.states), "last_at": timestamp(tree.last_at)} for tree in trees]
    if as_json:
        show_json({"pruned": form, "dry_run": dry_run, "work": {"kept": not with_work, "folders": holding}})
        return
    for tree in trees:
        show(f"{tree.root}  {_counted(len(tree.states), 'run')}, last {timestamp(tree.last_at)}")
    runs = sum(len(tree.states) for tree in trees)
    text = f"{_counted(runs, 'run')} in {_counted(len(trees), 'tree')}"
    click.echo(f"{'Would remove' if dry_run else 'Removed'} {text}.", err=True)
    for folder in holding:
        click.echo(f"{_removed_text(dry_run, with_work)}: {folder} has uncommitted work.", err=True)


def _removed_text(dry_run: bool, with_work: bool) -> str:
    if not with_work:
        return "Kept (--with-work removes it)"
    return "Would remove" if dry_run else "Removed"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def age_seconds(text: str) -> float:
    """The seconds of an age like `7d`."""
    try:
        # A number without a unit is refused: a wrong guess would remove runs for good.
        seconds = float(text[:-1]) * _UNITS[text[-1:]]
    except (KeyError, ValueError):
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UsageError("--older-than", text, "give a number and s, m, h, d or w, like 7d")
    return seconds
