"""`deputy show`, `transcript`, `export`, `pin` and `prune`: the runs that the journal stores."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deputy.core.errors import UnknownRun, UsageError
from deputy.core.outcome import how_to_answer, how_to_resume_call
from deputy.interfaces.cli.console import (
    Console,
    counted,
    note,
    open_journal,
    open_run,
    run_argument,
    show,
    show_json,
    warn,
    with_console,
)

if TYPE_CHECKING:
    from deputy.core.state import State
    from deputy.engine.ports.queries import Queries

ID = run_argument()

# --- show -------------------------------------------------------------------------------------------------------------

_ANSWERED, _DROPPED = "It has been answered.", "It has been cancelled."


@click.command(
    epilog="\b\nExamples:\n  deputy show sess_1763190000_x7k2ab\n  deputy show sess_1763190000_x7k2ab --json"
)
@ID
@click.option("--full", "is_full", is_flag=True, help="Show long texts and lists as a whole.")
@with_console()
def show_(console: Console, run: str, is_full: bool) -> None:
    """Show a run: what was asked, how it ended, what it used."""
    from deputy.interfaces.cli.run_page import show_page
    from deputy.interfaces.stored_branches import fetch_branches
    from deputy.journal.registry import show_run

    with open_run(run) as (queries, state):
        form = show_run(queries, run)
        answered = [] if console.as_json else _answered(queries, state)
        for problem in fetch_branches(queries, state):
            warn(problem)
    if form is None:
        raise UnknownRun(run)
    if console.as_json:
        show_json(form)
        return

    def current(advice: str) -> str:
        for asked, became in answered:
            advice = advice.replace(how_to_answer(asked), became)
        return advice

    show_page(form, is_full=is_full, current=current)


def _answered(queries: Queries, state: State) -> list[tuple[str, str]]:
    """The runs of the tree that no longer wait, each with the text that replaces how to answer it."""
    tree = [] if state.lineage is None else queries.tree(state.lineage.root_id)
    dropped = f"{_DROPPED} {how_to_resume_call(state.run)}" if state.command == "delegate" else _DROPPED
    return [
        (one.run, dropped if one.status == "cancelled" else _ANSWERED)
        for one in tree
        if one.status not in ("blocked", "waiting")
    ]


# --- transcript, export, pin ------------------------------------------------------------------------------------------


@click.command(
    epilog="\b\nExamples:\n  deputy transcript sess_1763190000_x7k2ab"
    "\n  deputy transcript --json sess_1763190000_x7k2ab"
)
@ID
@with_console("Print JSON, as in the transcript file.")
def transcript(console: Console, run: str) -> None:
    """Show the conversation of a subagent.

    It is printed as Markdown, also while the subagent runs or after it was killed. For a call with one
    subagent it is that subagent's conversation.
    """
    from deputy.journal.transcript import markdown, transcribe

    with open_journal() as queries:
        made = None if queries is None else transcribe(queries.records(run))
        if queries is None or made is None:
            raise UnknownRun(run)
        below = [] if made.messages else [one.run for one in queries.descendants(run) if one.parent == run]
        if len(below) == 1:
            made = transcribe(queries.records(below[0])) or made
    if len(below) > 1:
        note(f"{run} has no conversation of its own; its subagents have: {', '.join(below)}")
    if made.damaged:
        warn(f"{len(made.damaged)} damaged records were left out")
    console.show(made, markdown(made))


EXPORT_EXAMPLES = """\b
Examples:
  deputy export sess_1763190000_x7k2ab
  deputy export sess_1763190000_x7k2ab --to ../login-review

\b
The folder gets events.jsonl, outcome.json, transcript.json, transcript.md
and notes.md, the same files for each run below it in subagents/, and
export.json, which lists them; and changes.patch where a worker changed files.
Only you can read it. Nothing is overwritten.

\b
Exit codes:
  0 exported   2 the folder already exists   3 no such run"""


@click.command(epilog=EXPORT_EXAMPLES)
@ID
@click.option("--to", "place", metavar="DIR", help="The new folder; by default ./ID.")
@with_console("Print the content of export.json.")
def export(console: Console, run: str, place: str | None) -> None:
    """Write a run and its tree to a folder."""
    from deputy.interfaces.stored_branches import patches
    from deputy.journal.export import export as export_run
    from deputy.journal.home import write_whole
    from deputy.journal.transcript import safe_id

    folder = Path(place if place is not None else safe_id(run))
    with open_run(run) as (queries, state):
        written = export_run(queries, state, folder, time.time())
        places = {one["session_id"]: one["folder"] for one in written["runs"]}
        for one, patch in patches(queries, state):
            write_whole(folder / places[one] / "changes.patch", os.fsencode(patch))
    console.show({"folder": str(folder), **written}, f"{folder}: {counted(len(written['runs']), 'run')}")


@click.command(epilog="\b\nExamples:\n  deputy pin sess_1763190000_x7k2ab\n  deputy pin --off sess_1763190000_x7k2ab")
@ID
@click.option("--off", is_flag=True, help="Remove the pin.")
@with_console()
def pin(console: Console, run: str, off: bool) -> None:
    """Protect a run and its tree from pruning."""
    from deputy.journal.home import home_path
    from deputy.journal.retention import pin as pin_run
    from deputy.stores import find_store

    pin_run(find_store(home_path()), run, pinned=not off)
    text = f"{run} is {'no longer pinned' if off else 'pinned'}."
    console.show({"session_id": run, "pinned": not off}, text)


# --- prune ------------------------------------------------------------------------------------------------------------

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


@click.command(epilog="\b\nExamples:\n  deputy prune --dry-run\n  deputy prune --older-than 12h")
@click.option(
    "--older-than",
    "age",
    default="7d",
    show_default=True,
    metavar="AGE",
    help="Remove runs that ended longer ago: a number and s, m, h, d or w.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--with-work", is_flag=True, help="Also remove worktrees with uncommitted work that is older.")
@with_console()
def prune(console: Console, age: str, dry_run: bool, with_work: bool) -> None:
    """Remove old runs with their transcripts and worktrees.

    These stay: runs that are active, wait for an answer or are pinned; worktrees with uncommitted or ignored files; and
    all branches.
    """
    from deputy.core.request import timestamp
    from deputy.journal.home import home_path
    from deputy.journal.retention import orphaned_worktrees, remove_worktree
    from deputy.journal.retention import prune as prune_runs
    from deputy.stores import find_store
    from deputy.tools.git_worktrees import WorktreeCleanup

    store, worktrees = find_store(home_path()), WorktreeCleanup(os.environ)
    before = store.now() - age_seconds(age)
    trees = prune_runs(store, before, dry_run=dry_run, worktrees=worktrees)
    holding: list[str] = []
    for place in orphaned_worktrees(store, before, [state.run for tree in trees for state in tree.states]):
        is_work = worktrees.holds_work(place)
        if is_work:
            holding.append(str(place))
        if not dry_run and (with_work or not is_work):
            remove_worktree(place, worktrees)
    pruned = [{"session_id": tree.root, "runs": len(tree.states), "last_at": timestamp(tree.last_at)} for tree in trees]
    if console.as_json:
        work = {"kept": not with_work, "folders": holding}
        show_json({"pruned": pruned, "dry_run": dry_run, "work": work})
        return
    for tree in trees:
        show(f"{tree.root}  {counted(len(tree.states), 'run')}, last {timestamp(tree.last_at)}")
    removed = "Would remove" if dry_run else "Removed"
    runs = counted(sum(len(tree.states) for tree in trees), "run")
    note(f"{removed} {runs} in {counted(len(trees), 'tree')}.")
    for folder in holding:
        note(f"{removed if with_work else 'Kept (--with-work removes it)'}: {folder} has uncommitted work.")


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


COMMANDS = {"show": show_, "transcript": transcript, "export": export, "pin": pin, "prune": prune}
