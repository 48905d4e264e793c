"""`deputy ps`: list runs as a tree."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deputy.core.errors import StorageError
from deputy.core.events import APPROVAL
from deputy.core.queue_names import label_of, no_worker
from deputy.interfaces.cli.console import Console, note, open_journal, show, show_json, warn, with_console
from deputy.interfaces.run_names import short_ids
from deputy.interfaces.safe_text import print_error
from deputy.interfaces.text_lines import count, elapsed, one_line_at, terminal_width

if TYPE_CHECKING:
    from deputy.core.state import State
    from deputy.engine.ports.queries import Queries
    from deputy.engine.recover import RunStatus

_ENDED = 200
_NEWEST = 50
"""How many live runs a table has, besides those that wait for a person and their callers."""
_LEAST_ROOM = 16


@click.command(
    epilog="\b\nExamples:\n  deputy ps\n  deputy ps --all --json\n\n\b\nThe exit code is 0, also when there is no run."
)
@click.option("-a", "--all", "everything", is_flag=True, help="List all active runs, and the latest 200 that ended.")
@with_console()
def command(console: Console, everything: bool) -> None:
    """List runs that are active, waiting or interrupted: the newest 50, and those that wait for a person.

    The list includes runs that ended with a question: they wait for a person. Every command takes the short ID, a label
    that only one run has, or `last`; --json has whole ids. LEFT is the time until the deadline; IN and OUT are tokens.
    Tokens and COST include the subagents of a run.
    """
    from deputy.journal.registry import entry_dict, list_runs

    now = 0.0
    with open_journal() as queries:
        if queries is not None:
            _sync_here(queries)
            now = queries.now()
        # A script gets all of them.
        newest = None if everything or console.as_json else _NEWEST
        statuses = [] if queries is None else list_runs(queries, ended=_ENDED if everything else 0, newest=newest)
        live = 0 if queries is None else queries.live_count()
        ready = set[tuple[str, str]]() if queries is None else set(queries.addressed())
        short = {} if queries is None else short_ids(queries.ids(), [one.state.run for one in statuses])
    entries = [entry_dict(status, now) for status in statuses]
    if console.as_json:
        show_json({"delegations": entries})
    elif statuses:
        levels = _levels(statuses)
        rows = zip(statuses, entries, strict=True)
        show(_table([(short[one.state.run], *_row(one, entry, levels[one.state.run], now)) for one, entry in rows]))
        if hidden := live - sum(one.state.is_live for one in statuses):
            note(f"{hidden:,} more runs are active; --all lists them too.")
        _print_remedies(statuses, ready, short)
    else:
        note("No runs yet." if everything else "No active runs; --all also lists those that ended.")


def _print_remedies(statuses: list[RunStatus], ready: set[tuple[str, str]], short: dict[str, str]) -> None:
    """Print how to answer the first question and approval, and how to resume a run that was answered or interrupted."""
    if queued := _queued(statuses):
        note(queued)
    answered = {run for run, _ in ready}
    asking = [status.state for status in statuses if status.state.run not in answered]
    if words := [short[state.run] for state in asking if _waits_for_words(state)]:
        note(f'To answer: deputy resume {words[0]} --answer "…"')
    if approvals := [short[state.run] for state in asking if _waits_for_approval(state)]:
        note(f"To approve or deny: deputy approve {approvals[0]}")
    left = [one.state for one in statuses if one.is_orphaned and one.state.run in answered and one.state.waits]
    if left:
        note(f"{short[left[0].run]} is answered. To continue: deputy resume {short[left[0].run]}")
    elif interrupted := [
        one.state for one in statuses if one.is_orphaned and one.state.is_live and not one.state.waits
    ]:
        note(f"To continue what was interrupted: deputy resume {short[interrupted[0].run]}")


def _sync_here(queries: Queries) -> None:
    """Sync the tasks of this project; a damaged task file does not stop `ps`."""
    from deputy.interfaces.task_sync import sync_from
    from deputy.project_tasks.task_file import TaskFile, project_root

    try:
        sync_from(queries, TaskFile(project_root(Path.cwd())))
    except StorageError as error:
        warn(f"cannot update the project's tasks: {print_error(error)}")


def _queued(statuses: list[RunStatus]) -> str | None:
    """Why the first run that no worker takes waits, and what to do."""
    holders = (one.holder for one in statuses if one.holder is not None and one.holder.is_queued)
    return next((no_worker(holder.queue) for holder in holders if not holder.is_served), None)


_HEADINGS = ("ID", "STATUS", "AGE", "LEFT", "IN", "OUT", "COST", "DELEGATION")


def _waits_for_approval(state: State) -> bool:
    return APPROVAL in state.waits.values()


def _waits_for_words(state: State) -> bool:
    asks = state.status in ("blocked", "waiting") and bool(state.question) and state.command != "delegate"
    return asks and not _waits_for_approval(state)


def _levels(statuses: list[RunStatus]) -> dict[str, int]:
    """The indentation of each run; a subtask is a level too."""
    levels: dict[str, int] = {}
    for state in (status.state for status in statuses):
        is_root = state.lineage is None or state.lineage.root_id == state.run
        depth = 0 if is_root or state.lineage is None else state.lineage.depth + state.lineage.subtask_depth
        levels[state.run] = levels[state.parent] + 1 if state.parent in levels else depth
    return levels


def _where(status: RunStatus) -> str:
    """The worker that carries out the run, or the label of the workers that it waits for."""
    holder = status.holder
    if holder is None or not holder.queue:
        return ""
    if holder.host:
        return f" @{holder.host}"
    return f" @{label_of(holder.queue) or 'any worker'}" if holder.is_queued else ""


def _row(status: RunStatus, entry: dict[str, Any], level: int, now: float) -> tuple[str, ...]:
    state = status.state
    deadline = None if state.lineage is None or not state.is_live else state.lineage.deadline
    # A call repeats the questions of its tasks, which have rows of their own.
    asked = "" if state.command == "delegate" and not _waits_for_approval(state) else state.question
    name = f"{state.label or state.command or state.agent}{_where(status)}"
    # A call asks no model itself.
    model = f" ({state.model})" if state.model and state.command != "delegate" else ""
    return (
        entry["status"],
        elapsed(max(0.0, time.time() - state.requested_at)),
        "-" if deadline is None else ("overdue" if deadline < now else elapsed(deadline - now)),
        f"{'~' * status.usage.estimated}{count(status.usage.input)}",
        count(status.usage.output),
        status.usage.cost_text or "-",
        f"{'  ' * level}{name}{': ' if asked else ''}{asked}{model}",
    )


def _table(rows: list[tuple[str, ...]]) -> str:
    """A table no wider than the terminal: the last column is cut, or on a line of its own."""
    whole = [_HEADINGS, *rows]
    # Where there is no room for the tokens, the cost stays.
    for lines in (whole, [line[:4] + line[6:] for line in whole]):
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
        room = terminal_width() - sum(widths) - 2 * len(widths)
        if room >= _LEAST_ROOM:
            cells = ([*_padded(line, widths), one_line_at(line[-1], room)] for line in lines)
            return "\n".join("  ".join(line).rstrip() for line in cells)
    # On a narrow terminal the numbers are left out, and the label is below the id.
    narrow = [part for line in rows for part in (f"{line[0]}  {line[1]}  {line[2]}", f"  {line[-1]}")]
    return "\n".join(one_line_at(part, terminal_width()) for part in narrow)


def _padded(line: tuple[str, ...], widths: list[int]) -> list[str]:
    return [cell.ljust(width) for cell, width in zip(line[:-1], widths, strict=True)]
