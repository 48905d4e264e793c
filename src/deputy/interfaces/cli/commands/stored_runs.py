"""`deputy show`, `transcript`, `export`, `pin`, `prune` and `stats`: the runs that the journal stores."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from deputy.core.errors import UnknownRun, UsageError
from deputy.core.outcome import how_to_answer, how_to_resume_call
from deputy.interfaces.cli.console import (
    Console,
    counted,
    fitted,
    note,
    open_journal,
    open_run,
    show,
    show_json,
    warn,
    with_console,
)
from deputy.interfaces.text_lines import elapsed, terminal_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from deputy.core.limits import WallLimit
    from deputy.core.state import State
    from deputy.engine.ports.queries import Queries

ID = click.argument("run", metavar="ID")

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
    from deputy.journal.registry import show_run

    with open_run(run) as (queries, state):
        form = show_run(queries, run)
        answered = [] if console.as_json else _answered(queries, state)
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
@with_console("Print the form of the transcript file.")
def transcript(console: Console, run: str) -> None:
    """Show the conversation of a subagent.

    It is printed as Markdown, also while the subagent runs or after it was killed.
    """
    from deputy.journal.transcript import markdown, transcribe

    with open_journal() as queries:
        made = None if queries is None else transcribe(queries.records(run))
    if made is None:
        raise UnknownRun(run)
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
export.json, which lists them. Only you can read it. Nothing is overwritten.

\b
Exit codes:
  0 exported   2 the folder already exists   3 no such run"""


@click.command(epilog=EXPORT_EXAMPLES)
@ID
@click.option("--to", "place", metavar="DIR", help="The new folder; by default ./ID.")
@with_console("Print the content of export.json.")
def export(console: Console, run: str, place: str | None) -> None:
    """Write a run and its tree to a folder."""
    from deputy.journal.export import export as export_run
    from deputy.journal.transcript import safe_id

    folder = Path(place if place is not None else safe_id(run))
    with open_run(run) as (queries, state):
        written = export_run(queries, state, folder, time.time())
    console.show({"folder": str(folder), **written}, f"{folder}: {counted(len(written['runs']), 'run')}")


@click.command(epilog="\b\nExamples:\n  deputy pin sess_1763190000_x7k2ab\n  deputy pin --off sess_1763190000_x7k2ab")
@ID
@click.option("--off", is_flag=True, help="Remove the pin.")
@with_console()
def pin(console: Console, run: str, off: bool) -> None:
    """Protect a run and its tree from pruning."""
    from deputy.journal.home import home_path
    from deputy.journal.retention import pin as pin_run

    pin_run(home_path(), run, pinned=not off)
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
    from deputy.tools.git_worktrees import WorktreeCleanup

    home, worktrees = home_path(), WorktreeCleanup(os.environ)
    before = time.time() - age_seconds(age)
    trees = prune_runs(home, before, dry_run=dry_run, worktrees=worktrees)
    holding: list[str] = []
    for place in orphaned_worktrees(home, before, [state.run for tree in trees for state in tree.states]):
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


# --- stats ------------------------------------------------------------------------------------------------------------

_LOOKED_AT = 10_000
_HEADINGS = ("COMMAND", "RUNS", "TIMEOUTS", "MEDIAN", "P95", "LIMIT", "MAX")

STATS_EXAMPLES = f"""\b
Examples:
  deputy stats
  deputy stats --json | jq '.commands[] | select(.timeouts > 0)'

\b
The latest {_LOOKED_AT:,} stored runs that ended are counted; a resumed run counts
with its last round. To change a limit, edit ~/.config/deputy/config.toml:
  [limits.commands.research]
  default = 1800

\b
Exit codes:
  0 also when no run has ended yet   2 usage"""


SUBAGENT = "subagent"
"""The command name for tasks of the Delegate tool."""


class CommandStats(Struct, frozen=True, kw_only=True):
    """The durations of one command's delegations in seconds; None means no limit."""

    command: str
    count: int
    timeouts: int
    median_seconds: float
    p95_seconds: float
    default_seconds: float | None
    max_seconds: float | None


@click.command(epilog=STATS_EXAMPLES)
@with_console()
def stats(console: Console) -> None:
    """Show how long runs take, beside their time limits."""
    from deputy.config import load_effective_settings

    settings = load_effective_settings()

    def limit_of(name: str) -> WallLimit | None:
        # The limit of `delegate` applies to each of its tasks.
        return None if name == "delegate" else settings.limit("delegate" if name == SUBAGENT else name)

    with open_journal() as queries:
        found = [] if queries is None else stats_of(queries.ended(_LOOKED_AT), limit_of)
    if found or console.as_json:
        console.show({"commands": found}, _table([_HEADINGS, *map(_row, found)]))
    else:
        note("No run has ended yet.")


def stats_of(states: Iterable[State], limit_of: Callable[[str], WallLimit | None]) -> list[CommandStats]:
    """The statistics of ended runs by command, the most frequent first."""
    durations: dict[str, list[float]] = {}
    timeouts: dict[str, int] = {}
    for state in states:
        # A rejected run never ran.
        if state.ended_clock is None or state.status == "rejected":
            continue
        command = state.command or SUBAGENT
        durations.setdefault(command, []).append(max(0.0, state.ended_clock - state.began_clock))
        timeouts[command] = timeouts.get(command, 0) + (state.reason == "timeout")
    ordered = sorted(durations, key=lambda command: (-len(durations[command]), command))
    return [_stats(command, durations[command], timeouts[command], limit_of(command)) for command in ordered]


def _stats(command: str, durations: list[float], timeouts: int, limit: WallLimit | None) -> CommandStats:
    ordered = sorted(durations)
    return CommandStats(
        command=command,
        count=len(ordered),
        timeouts=timeouts,
        median_seconds=round(_percentile(ordered, 50), 3),
        p95_seconds=round(_percentile(ordered, 95), 3),
        default_seconds=None if limit is None else limit.default_seconds,
        max_seconds=None if limit is None else limit.max_seconds,
    )


def _percentile(ordered: list[float], percent: float) -> float:
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _row(stats: CommandStats) -> tuple[str, ...]:
    limits = (stats.default_seconds, stats.max_seconds)
    return (
        stats.command,
        str(stats.count),
        str(stats.timeouts),
        elapsed(stats.median_seconds),
        elapsed(stats.p95_seconds),
        *("-" if seconds is None else elapsed(seconds) for seconds in limits),
    )


def _table(lines: list[tuple[str, ...]]) -> str:
    """A table; on a narrow terminal one line per command with named numbers."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > terminal_width():
        _, *names = (name.lower() for name in lines[0])
        return "\n".join(
            fitted(f"{command}: {', '.join(f'{name} {cell}' for name, cell in zip(names, cells, strict=True))}")
            for command, *cells in lines[1:]
        )
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


COMMANDS = {"show": show_, "transcript": transcript, "export": export, "pin": pin, "prune": prune, "stats": stats}
