"""`deputy watch`: follow a run from another terminal, by reading the journal."""

from __future__ import annotations

import asyncio
import sys
import time
from math import inf
from typing import TYPE_CHECKING

import click

from deputy.core.errors import UnknownRun
from deputy.core.progress import Progress
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
from deputy.interfaces.tree_news import TreeNews

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from deputy.core.state import State
    from deputy.engine.ports.queries import Queries
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
    """Finds the news of a tree of runs since the last poll, and its end."""

    def __init__(self, queries: Queries, run: str) -> None:
        self._queries = queries
        self._run = run
        self._news = TreeNews(queries, run)
        self._expire_at = self._check_holder_at = -inf

    @property
    def _tree(self) -> dict[str, State]:
        return self._news.tree

    def poll(self) -> tuple[list[Progress], int | None]:
        """The news, and the exit code when the run is over."""
        now = time.monotonic()
        if now >= self._expire_at:
            self._expire_at = now + expire_overdue(self._queries)
        news = self._news.look()
        if self._news.has_changed:
            # One of them may have a new deadline.
            self._expire_at = min(self._expire_at, time.monotonic() + _EXPIRE_SECONDS)
        code = self._ending(now)
        return (news if code != INTERRUPTED else [*news, *self._interrupted()]), code

    def is_open_question(self, progress: Progress) -> bool:
        """Whether this news is a question that still waits for a person."""
        state = self._tree.get(progress.session_id)
        return progress.event == "waiting" and state is not None and state.status == "waiting"

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
        holder = self._queries.holders((self._run,)).get(self._run)
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
