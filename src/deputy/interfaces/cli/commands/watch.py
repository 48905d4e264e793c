"""`deputy watch`: follow a run from another terminal, by reading the journal."""

from __future__ import annotations

import asyncio
import sys
import time
from math import inf
from typing import TYPE_CHECKING

import click
from msgspec import MsgspecError, json, structs

from deputy.core.errors import UnknownRun
from deputy.core.events import Record, Requested
from deputy.core.progress import Progress, redacted
from deputy.interfaces.cli.console import (
    CANCELLED,
    NOTHING_FOUND,
    Console,
    exit_code,
    expire_overdue,
    open_journal,
    run_argument,
    warn,
    with_console,
)
from deputy.interfaces.cli.runner import run_command
from deputy.interfaces.cli.streams import is_unread
from deputy.interfaces.cli.terminal_prompt import BELL
from deputy.processes.outgoing import process_redactor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from deputy.core.state import State
    from deputy.engine.ports.queries import Cursor, ProgressEvent, Queries
    from deputy.interfaces.view.event_lines import Subscribers

EXAMPLES = """\b
Examples:
  deputy watch                          the run that started last
  deputy watch sess_1763190000_x7k2ab
  deputy watch --json | jq .event

\b
The exit code is that of the outcome; 3 when no run is active, 4 when the
run was interrupted: its process died, and `deputy resume` continues it."""

LOOK_SECONDS = 0.2
_EXPIRE_SECONDS = 5.0
"""How soon after a change overdue runs are looked for."""
_HOLDER_SECONDS = 2.0
"""How often the process of the run is looked for."""
INTERRUPTED = 4


@click.command(epilog=EXAMPLES)
@run_argument(required=False)
@with_console("Print events as JSON lines.")
def command(console: Console, run: str | None) -> int:
    """Follow a run of another terminal."""
    with open_journal() as queries:
        found = run if run is not None or queries is None else _latest(queries)
        if found is None:
            return console.not_found("no run is active; `deputy ps --all` lists those that ended")
        if queries is None or queries.state(found) is None:
            raise UnknownRun(found)
        return run_command(lambda stop: _watch(queries, found, console.as_json, stop))


def _latest(queries: Queries) -> str | None:
    roots = [state.run for state in queries.live() if state.parent is None]
    return roots[-1] if roots else None


async def _watch(queries: Queries, run: str, as_json: bool, stop: asyncio.Event) -> int:
    from deputy.interfaces.view.event_lines import Subscribers, open_events
    from deputy.interfaces.view.renderers import ParentView, open_view

    async with open_events("-" if as_json else None) as lines:
        async with open_view(is_quiet=as_json) as view:
            is_streaming = sys.stdout.isatty() and not as_json
            parent = ParentView(view, is_streaming=is_streaming, is_quiet=as_json, shows_questions=True)
            told_on = sys.stdout if as_json else sys.stderr
            rings = sys.stderr.isatty() and not as_json
            code = await _follow(_Follower(queries, run), Subscribers(lines, parent), stop, told_on, rings=rings)
        parent.finish()
        state = await asyncio.to_thread(queries.state, run)
        if code == INTERRUPTED and state is not None and state.is_live:
            warn(f"its process died; continue it with `deputy resume {run}`")
        return code


async def _follow(
    follower: _Follower, subscribers: Subscribers, stop: asyncio.Event, is_printed: TextIO, *, rings: bool
) -> int:
    """Print news until the run ends, Ctrl-C, or the reader of our output is gone; the bell rings for questions."""
    while True:
        news, code = await asyncio.to_thread(follower.poll)
        for progress in news:
            subscribers.emit(progress)
        if rings and any(follower.is_open_question(progress) for progress in news):
            is_printed.write(BELL)
            is_printed.flush()
        if code is not None or is_unread(is_printed):
            return CANCELLED if code is None else code
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await stop.wait()
        except TimeoutError:
            continue
        return CANCELLED


class _Follower:
    """Finds the news of a tree of runs since the last poll."""

    def __init__(self, queries: Queries, run: str) -> None:
        self._queries = queries
        self._run = run
        self._redactor = process_redactor()
        self._cursor: Cursor | None = None
        self._tree: dict[str, State] = {}
        self._shown: dict[str, int] = {}
        self._usage: dict[str, tuple[int, int]] = {}
        self._over: set[str] = set()
        self._began: dict[str, float] = {}
        self._earliest: dict[str, float] = {}
        self._expire_at = self._check_holder_at = -inf

    def poll(self) -> tuple[list[Progress], int | None]:
        """The news, and the exit code when the run is over."""
        now = time.monotonic()
        if now >= self._expire_at:
            self._expire_at = now + expire_overdue(self._queries)
        news = self._news()
        code = self._ending(now)
        return (news if code != INTERRUPTED else [*news, *self._interrupted()]), code

    def is_open_question(self, progress: Progress) -> bool:
        """Whether this news is a question that still waits for a person."""
        state = self._tree.get(progress.session_id)
        return progress.event == "waiting" and state is not None and state.status == "waiting"

    def _news(self) -> list[Progress]:
        """The news of the run and everything below it, in the order of time."""
        runs, shown = self._changes()
        if runs:
            # One of them may have a new deadline.
            self._expire_at = min(self._expire_at, time.monotonic() + _EXPIRE_SECONDS)
        rows: dict[str, list[ProgressEvent]] = {}
        for state in runs:
            if state.run == self._run or state.parent in self._tree:
                self._tree[state.run] = state
                rows[state.run] = []
        for one in shown:
            if one.run in self._tree:
                rows.setdefault(one.run, []).append(one)
        found = [one for run, events in rows.items() for one in self._news_of(self._tree[run], events)]
        # Sorted, so that a run never ends before the runs below it.
        return [progress for _, progress in sorted(found, key=lambda one: one[0])]

    def _changes(self) -> tuple[Sequence[State], Sequence[ProgressEvent]]:
        """The changed states and new progress: of all runs, or of the tree where it is read anew."""
        queries = self._queries
        runs: dict[str, State] = {}
        shown: list[ProgressEvent] = []
        while self._cursor is not None:
            changes = queries.follow(self._cursor)
            self._cursor = None if changes.is_reset else changes.cursor
            runs |= {state.run: state for state in changes.runs}
            shown += changes.progress
            if not changes.is_reset and not changes.has_more:
                return list(runs.values()), shown
        self._cursor = queries.cursor()
        self._tree.clear()
        state = queries.state(self._run)
        tree = [] if state is None else [state, *queries.descendants(self._run)]
        return tree, [one for state in tree for one in queries.progress(state.run)]

    def _ending(self, now: float) -> int | None:
        """The exit code when the run is over."""
        state = self._tree.get(self._run)
        if state is None:
            return NOTHING_FOUND
        if not state.is_live:
            outcome = self._queries.outcome(state)
            return INTERRUPTED if outcome is None else exit_code([outcome])
        if state.status == "waiting" or now < self._check_holder_at:
            return None
        # The death of a process writes no record.
        self._check_holder_at = now + _HOLDER_SECONDS
        holder = self._queries.holders().get(self._run)
        if holder is not None and not holder.is_orphaned:
            return None
        current = self._queries.state(self._run)
        return None if current is None or current.seq != state.seq else INTERRUPTED

    def _interrupted(self) -> Iterator[Progress]:
        """An `interrupted` event for each active run: its process died."""
        for state in self._tree.values():
            if state.is_live and state.run != self._run:
                label = state.label or state.command
                yield Progress(event="completed", label=label, session_id=state.run, status="interrupted")

    def _started(self, state: State, label: str) -> Progress:
        """The `started` event, with the task's place in its call."""
        queries = self._queries
        start = next((one.event for one in queries.records(state.run, limit=1) if isinstance(one, Record)), None)
        began = self._began[state.run]
        text = Progress(event="started", label=label, session_id=state.run, seconds=_since(began, queries.now()))
        if not isinstance(start, Requested):
            return text
        return structs.replace(text, parent=start.parent or "", index=start.options.index, total=start.options.total)

    def _news_of(self, state: State, shown: Sequence[ProgressEvent]) -> Iterator[tuple[float, Progress]]:
        """The news of one run with their times, none before the start of the run and of those above it."""
        label = state.label or state.command or "run"
        is_parent = state.command and state.parent is None
        # All events of a run use its first known start.
        began = self._began.setdefault(state.run, state.began_clock)
        earliest = self._earliest.setdefault(state.run, max(began, self._earliest.get(state.parent or "", 0.0)))
        if state.run not in self._shown and not is_parent:
            yield earliest, self._started(state, label)
        last = self._shown.setdefault(state.run, 0)
        for one in (one for one in shown if one.number > last):
            self._shown[state.run] = one.number
            try:
                progress = json.decode(one.body, type=Progress)
            except MsgspecError:
                continue
            is_start = progress.event == "started"
            text = progress if is_start else structs.replace(progress, seconds=_since(began, one.at))
            yield max(one.at, earliest), redacted(text, self._redactor)
        until = inf if state.ended_clock is None else max(state.ended_clock, earliest)
        used = (state.usage.input, state.usage.output)
        if used != self._usage.get(state.run, (0, 0)) and not is_parent:
            self._usage[state.run] = used
            text = Progress(event="tokens", label=label, session_id=state.run, input=used[0], output=used[1])
            usage, model = state.usage, state.model or None
            yield until, structs.replace(text, cost=usage.cost, estimated=usage.estimated, model=model)
        if not state.is_live and state.run not in self._over and not is_parent:
            self._over.add(state.run)
            text = Progress(event="completed", label=label, session_id=state.run, status=state.status)
            seconds = None if state.ended_clock is None else _since(began, state.ended_clock)
            yield until, structs.replace(text, reason=state.reason or None, seconds=seconds)


def _since(began: float, at: float) -> float:
    return max(0.0, round(at - began, 3))
