"""The news of a tree of runs, read from the journal: what watchers in its process would see."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from msgspec import MsgspecError, json, structs

from deputy.core.events import Record, Requested
from deputy.core.progress import Progress, redacted
from deputy.processes.outgoing import process_redactor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deputy.core.state import State
    from deputy.engine.ports.queries import Cursor, ProgressEvent, Queries


class TreeNews:
    """Finds the news of a tree of runs since the last look. One thread uses it at a time."""

    def __init__(self, queries: Queries, run: str) -> None:
        self._queries = queries
        self._run = run
        self._redactor = process_redactor()
        self._cursor: Cursor | None = None
        self.tree: dict[str, State] = {}
        """The runs of the tree that are known."""
        self._shown: dict[str, int] = {}
        self._usage: dict[str, tuple[int, int]] = {}
        self._over: set[str] = set()
        self._began: dict[str, float] = {}
        self._earliest: dict[str, float] = {}
        self.has_changed = False
        """Whether a run of the journal had changed at the last look."""

    def look(self) -> list[Progress]:
        """The news of the run and everything below it, in the order of time."""
        runs, shown = self._changes()
        self.has_changed = bool(runs)
        rows: dict[str, list[ProgressEvent]] = {}
        for state in runs:
            if state.run == self._run or state.parent in self.tree:
                self.tree[state.run] = state
                rows[state.run] = []
        for one in shown:
            if one.run in self.tree:
                rows.setdefault(one.run, []).append(one)
        found = [one for run, events in rows.items() for one in self._news_of(self.tree[run], events)]
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
        self.tree.clear()
        state = queries.state(self._run)
        tree = [] if state is None else [state, *queries.descendants(self._run)]
        return tree, [one for state in tree for one in queries.progress(state.run)]

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
