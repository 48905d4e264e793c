"""What of a row changes without a record: its status, its flags, and dollars a minute."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from deputy.core.queue_names import no_worker
from deputy.engine.recover import RunStatus, seconds_late, shown_status
from deputy.interfaces.web.activity import Activity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.core.state import State
    from deputy.engine.ports.queries import LeaseHolder, Queries

_CLOCK_STEP_SECONDS = 1.0


class Marks(NamedTuple):
    """What of a row changes without a record."""

    status: str
    flags: list[str]
    rate: float
    reason: str = ""
    """Why a queued run waits."""


class RowMarks:
    """The marks of all rows. Those of a run are read again after an event, and when a time of theirs has come."""

    def __init__(self) -> None:
        self.activities: dict[str, Activity] = {}
        """What each live run does."""
        self._orphaned: set[str] = set()
        self._queued: dict[str, LeaseHolder] = {}
        self._live_children: dict[str, int] = {}
        self._known: dict[str, Marks] = {}
        self._due: dict[str, float] = {}
        """When the marks of a live run may be others, by the wall clock."""
        self._now = self._offset = 0.0

    def set_clock(self, now: float, offset: float) -> None:
        """Set the time by the wall clock, and how far the journal's clock is behind it."""
        if abs(offset - self._offset) > _CLOCK_STEP_SECONDS:
            # The wall clock was set.
            self._due = dict.fromkeys(self._due, -inf)
        self._now, self._offset = now, offset

    def put(self, before: State | None, state: State) -> bool:
        """Take the new state of a run; returns whether it ended."""
        self._orphaned.discard(state.run)
        self._queued.pop(state.run, None)
        step = state.is_live - (before is not None and before.is_live)
        if state.parent is not None and step:
            self._live_children[state.parent] = self._live_children.get(state.parent, 0) + step
            self._touch(state.parent)
        if state.is_live:
            if state.run not in self.activities:
                self.activities[state.run] = Activity()
            self.activities[state.run].spent(state.usage.cost, self._now)
            return False
        self._due.pop(state.run, None)
        return self.activities.pop(state.run, None) is not None

    def note_progress(self, run: str) -> None:
        """Take notice of a progress event, which few marks depend on."""
        flags, activity = self._known[run].flags if run in self._known else [], self.activities[run]
        has_changed = activity.is_loop != ("loop" in flags) or activity.is_retrying != ("retrying" in flags)
        if has_changed or "silent" in flags:
            self._touch(run)

    def _touch(self, run: str) -> None:
        """Read the marks of a run again at the next tick."""
        if run in self._due:
            self._due[run] = -inf

    def forget(self, run: str) -> None:
        """Forget a run that is no longer shown."""
        self._known.pop(run, None)

    def check_holders(self, queries: Queries, states: Mapping[str, State]) -> None:
        """Find the live runs without a process, whose death writes no record, and those that wait for a worker."""
        holders = queries.holders()
        lost = {run for run in self.activities if run not in holders or holders[run].is_orphaned}
        orphaned = self._orphaned & lost
        for run in lost - orphaned:
            # A run that ended since it was read has no holder, and is no orphan.
            state = queries.state(run)
            if state is not None and state.seq == states[run].seq:
                orphaned.add(run)
        queued = {run: holder for run, holder in holders.items() if holder.is_queued}
        for run in (orphaned ^ self._orphaned) | {run for run, _ in queued.items() ^ self._queued.items()}:
            self._touch(run)
        self._orphaned, self._queued = orphaned, queued

    def changed(self, states: Mapping[str, State]) -> list[str]:
        """The runs whose marks have changed without a record."""
        due = [run for run, at in self._due.items() if at <= self._now]
        before = {run: self._known.get(run) for run in due}
        return [run for run in due if self.of(states[run]) != before[run]]

    def of(self, state: State) -> Marks:
        """The marks of a run now."""
        run, activity = state.run, self.activities.get(state.run)
        holder = self._queued.get(run)
        status = shown_status(RunStatus(state=state, is_orphaned=run in self._orphaned, holder=holder))
        rate = 0.0 if activity is None else round(activity.rate(self._now), 4)
        reason = "" if holder is None else _queue_reason(holder)
        marks = self._known[run] = Marks(status, self._flags(state, status, activity), rate, reason)
        if activity is not None:
            self._due[run] = activity.next_change(state, self._now, self._late_at(state))
        return marks

    def _late_at(self, state: State) -> float:
        deadline = None if state.lineage is None else state.lineage.deadline
        return inf if deadline is None else deadline + self._offset

    def _flags(self, state: State, status: str, activity: Activity | None) -> list[str]:
        if status == "interrupted":
            return ["interrupted"]
        if activity is None:
            return []
        is_late = seconds_late(state, self._now - self._offset) > 0
        # A run that waits for a worker, or for its subagents, has nothing to say.
        is_idle = status == "queued" or self._live_children.get(state.run, 0) > 0
        return activity.flags(state, self._now, is_late=is_late, is_idle=is_idle)


def _queue_reason(holder: LeaseHolder) -> str:
    return "waits for a worker" if holder.is_served else no_worker(holder.queue)
