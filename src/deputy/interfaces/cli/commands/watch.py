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
from deputy.core.progress import Progress
from deputy.interfaces.cli.console import (
    CANCELLED,
    NOTHING_FOUND,
    Console,
    exit_code,
    expire_overdue,
    open_journal,
    warn,
    with_console,
)
from deputy.interfaces.cli.runner import run_command
from deputy.interfaces.cli.streams import is_unread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from deputy.core.state import State
    from deputy.interfaces.view.subscribers import Subscribers
    from deputy.journal.sqlite.reader import JournalReader

EXAMPLES = """\b
Examples:
  deputy watch                          the run that started last
  deputy watch sess_1763190000_x7k2ab
  deputy watch --json | jq .event

\b
The exit code is that of the outcome; 3 when no run is active, 4 when the
run was interrupted: its process died, and `deputy resume` continues it."""

LOOK_SECONDS = 0.2
_LATE_LOOKS = 25
"""Overdue runs are ended once per this many polls."""
INTERRUPTED = 4


@click.command(epilog=EXAMPLES)
@click.argument("run", metavar="[ID]", required=False)
@with_console("Print events as JSON lines.")
def command(console: Console, run: str | None) -> int:
    """Follow a run of another terminal."""
    with open_journal() as reader:
        found = run if run is not None or reader is None else _latest(reader)
        if found is None:
            warn("no run is active; `deputy ps --all` lists those that ended")
            return NOTHING_FOUND
        if reader is None or not reader.knows(found):
            raise UnknownRun(found)
        return run_command(lambda stop: _watch(reader, found, console.as_json, stop))


def _latest(reader: JournalReader) -> str | None:
    roots = [state.run for state in reader.live() if state.parent is None]
    return roots[-1] if roots else None


async def _watch(reader: JournalReader, run: str, as_json: bool, stop: asyncio.Event) -> int:
    from deputy.interfaces.view.parent_view import ParentView
    from deputy.interfaces.view.renderers import open_view
    from deputy.interfaces.view.subscribers import Subscribers, open_events

    async with open_events("-" if as_json else None) as lines:
        async with open_view(is_quiet=as_json) as view:
            parent = ParentView(view, is_streaming=sys.stdout.isatty() and not as_json, is_quiet=as_json)
            told_on = sys.stdout if as_json else sys.stderr
            code = await _follow(_Follower(reader, run), Subscribers(lines, parent), stop, told_on)
        parent.finish()
        state = await asyncio.to_thread(reader.state, run)
        if code == INTERRUPTED and state is not None and state.is_live:
            warn(f"its process died; continue it with `deputy resume {run}`")
        return code


async def _follow(follower: _Follower, subscribers: Subscribers, stop: asyncio.Event, is_printed: TextIO) -> int:
    """Print news until the run ends, Ctrl-C, or the reader of our output is gone."""
    while True:
        news, code = await asyncio.to_thread(follower.poll)
        for progress in news:
            subscribers.emit(progress)
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

    def __init__(self, reader: JournalReader, run: str) -> None:
        self.reader = reader
        self._run = run
        self._seen = -1
        self._looks = 0
        self._told: dict[str, int] = {}
        self._usage: dict[str, tuple[int, int]] = {}
        self._over: set[str] = set()
        self._began: dict[str, float] = {}
        self._earliest: dict[str, float] = {}

    def poll(self) -> tuple[list[Progress], int | None]:
        """The news, and the exit code when the run is over."""
        if self._looks % _LATE_LOOKS == 0:
            expire_overdue(self.reader)
        self._looks += 1
        changes = self.reader.changes()
        news = list(self.changes()) if changes != self._seen else []
        self._seen = changes
        code = self.ending()
        return (news if code != INTERRUPTED else [*news, *self._interrupted()]), code

    def changes(self) -> Iterator[Progress]:
        """The news of the run and everything below it, in the order of time."""
        state = self.reader.state(self._run)
        every = [] if state is None else [state, *self.reader.descendants(self._run)]
        found = [one for state in every for one in self._news_of(state)]
        # Sorted, so that a run never ends before the runs below it.
        return (progress for _, progress in sorted(found, key=lambda one: one[0]))

    def ending(self) -> int | None:
        """The exit code when the run is over."""
        from deputy.core.events import AdmissionRefused, Returned
        from deputy.journal.sqlite.rows import DamagedRecord

        state = self.reader.state(self._run)
        if state is None:
            return NOTHING_FOUND
        if state.is_live:
            holder = self.reader.holders([self._run]).get(self._run)
            if state.status == "waiting" or (holder is not None and not holder.is_orphaned(time.monotonic())):
                return None
            return INTERRUPTED
        record = self.reader.get(self._run, f"returned:{state.round}")
        if (
            record is None
            or isinstance(record, DamagedRecord)
            or not isinstance(record.event, Returned | AdmissionRefused)
        ):
            return INTERRUPTED
        return exit_code([record.event.outcome])

    def _interrupted(self) -> Iterator[Progress]:
        """An `interrupted` event for each active run: its process died."""
        for state in self.reader.descendants(self._run):
            if state.is_live:
                label = state.label or state.command
                yield Progress(event="completed", label=label, session_id=state.run, status="interrupted")

    def _started(self, state: State, label: str) -> Progress:
        """The `started` event, with the task's place in its call."""
        start = next((record.event for record in self.reader.records(state.run) if isinstance(record, Record)), None)
        began = self._began[state.run]
        text = Progress(event="started", label=label, session_id=state.run, seconds=_since(began, self.reader.now()))
        if not isinstance(start, Requested):
            return text
        return structs.replace(text, parent=start.parent or "", index=start.options.index, total=start.options.total)

    def _news_of(self, state: State) -> Iterator[tuple[float, Progress]]:
        """The news of one run with their times, none before the start of the run and of those above it."""
        label = state.label or state.command or "run"
        is_parent = state.command and state.parent is None
        # All events of a run use its first known start.
        began = self._began.setdefault(state.run, state.began_clock)
        earliest = self._earliest.setdefault(state.run, max(began, self._earliest.get(state.parent or "", 0.0)))
        if state.run not in self._told and not is_parent:
            yield earliest, self._started(state, label)
        after = self._told.setdefault(state.run, 0)
        for number, at, body in self.reader.progress(state.run, after):
            self._told[state.run] = number
            try:
                progress = json.decode(body, type=Progress)
            except MsgspecError:
                continue
            is_start = progress.event == "started"
            yield max(at, earliest), progress if is_start else structs.replace(progress, seconds=_since(began, at))
        until = inf if state.ended_clock is None else max(state.ended_clock, earliest)
        used = (state.usage.input, state.usage.output)
        if used != self._usage.get(state.run, (0, 0)) and not is_parent:
            self._usage[state.run] = used
            text = Progress(event="tokens", label=label, session_id=state.run, input=used[0], output=used[1])
            yield until, structs.replace(text, cost=state.usage.cost, estimated=state.usage.estimated)
        if not state.is_live and state.run not in self._over and not is_parent:
            self._over.add(state.run)
            text = Progress(event="completed", label=label, session_id=state.run, status=state.status)
            seconds = None if state.ended_clock is None else _since(began, state.ended_clock)
            yield until, structs.replace(text, reason=state.reason or None, seconds=seconds)


def _since(began: float, at: float) -> float:
    return max(0.0, round(at - began, 3))
