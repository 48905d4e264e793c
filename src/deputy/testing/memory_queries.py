"""The Queries port over a MemoryDisk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.events import AdmissionRefused, Returned, encode
from deputy.engine.ports.queries import (
    FOLLOW_LIMIT,
    Changes,
    Cursor,
    LeaseHolder,
    LoggedErrorRow,
    ProgressEvent,
    RecordHead,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from types import TracebackType

    from deputy.core.events import Record
    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.testing.memory_journal import MemoryDisk


class MemoryQueries:
    """Reads a disk, as another process would."""

    location = "memory"
    damage = ""

    def __init__(self, disk: MemoryDisk, clock: Callable[[], float]) -> None:
        self._disk = disk
        self.now = clock

    def __enter__(self) -> MemoryQueries:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def close(self) -> None:
        """Nothing is open."""

    def examine(self) -> list[str]:
        """No record is ever missing."""
        return []

    def state(self, run: str) -> State | None:
        """The state of a run."""
        return self._disk.state(run)

    def live(self) -> list[State]:
        """The runs that have not ended."""
        return [state for state in self._states() if state.is_live]

    def live_count(self) -> int:
        """How many runs have not ended."""
        return len(self.live())

    def blocked(self) -> list[State]:
        """The runs that ended with an open question."""
        return [state for state in self._states() if state.status == "blocked"]

    def ended(self, limit: int) -> list[State]:
        """The runs that ended last, oldest first."""
        ended = sorted((state for state in self._states() if not state.is_live), key=lambda state: -state.last_at)
        return sorted(ended[:limit], key=_age)

    def ids(self) -> list[str]:
        """The ids of all runs."""
        return [state.run for state in self._states()]

    def labelled(self, label: str) -> list[State]:
        """The runs with this label."""
        return [state for state in self._states() if state.label == label]

    def tree(self, root: str) -> list[State]:
        """All runs of a root session."""
        return [state for state in self._states() if _root(state) == root]

    def children(self, run: str) -> list[State]:
        """The runs that a run spawned."""
        return [state for state in self._states() if state.parent == run]

    def descendants(self, run: str) -> list[State]:
        """All runs below a run."""
        return sorted(self._disk.descendants(run), key=_age)

    def holders(self, runs: Collection[str] | None = None) -> dict[str, LeaseHolder]:
        """The processes that hold the leases of these runs, or of all, by run."""
        alive = self._disk.alive
        return {
            run: LeaseHolder(owner=owner, is_gone=owner not in alive, is_silent=owner not in alive)
            for run, (owner, _) in self._disk.leases.items()
            if owner is not None and (runs is None or run in runs)
        }

    def addressed(self) -> list[tuple[str, str]]:
        """The live runs with untaken messages, and their topics."""
        untaken = {(run, topic) for run, topic, _, _, is_taken in self._disk.inbox if not is_taken}
        return [one for one in untaken if (state := self.state(one[0])) is not None and state.is_live]

    def records(self, run: str, after: int = 0, limit: int | None = None) -> Iterator[Record]:
        """The records of a run."""
        found = self._disk.records.get(run, [])
        yield from found[after:] if limit is None else found[after : after + limit]

    def get(self, run: str, key: str) -> Record | None:
        """The record of a run under a key."""
        return next((record for record in self.records(run) if record.key == key), None)

    def outcome(self, state: State) -> Outcome | None:
        """The outcome of a run's last round."""
        record = None if state.is_live else self.get(state.run, f"returned:{state.round}")
        event = None if record is None else record.event
        return event.outcome if isinstance(event, Returned | AdmissionRefused) else None

    def progress(self, run: str) -> list[ProgressEvent]:
        """The latest progress events of a run."""
        return list(self._disk.progress.get(run, ()))

    def recent_progress(self, limit: int) -> list[ProgressEvent]:
        """The latest progress events of all runs."""
        shown = sorted((one for ring in self._disk.progress.values() for one in ring), key=lambda one: one.number)
        return shown[-limit:] if limit else []

    def errors(self, limit: int) -> list[LoggedErrorRow]:
        """The latest errors, newest first."""
        return sorted(self._disk.errors.values(), key=lambda error: -error.last_at)[:limit]

    def cursor(self) -> Cursor:
        """The present end of the journal."""
        return Cursor(self._disk.generation, len(self._disk.log), self._disk.shown)

    def follow(self, cursor: Cursor, limit: int = FOLLOW_LIMIT) -> Changes:
        """Everything that changed since a cursor, up to a limit."""
        end = self.cursor()
        if end.generation != cursor.generation:
            return Changes(cursor=end, is_reset=True)
        new = self._disk.log[cursor.record : cursor.record + limit]
        heads = tuple(RecordHead(one.run, one.seq, one.at, one.event.kind, len(encode(one.event))) for one in new)
        states = [state for run in {one.run for one in new} if (state := self.state(run)) is not None]
        runs = tuple(sorted(states, key=_age))
        if len(new) == limit:
            position = cursor._replace(record=cursor.record + limit)
            return Changes(cursor=position, runs=runs, records=heads, has_more=True)
        every = (one for ring in self._disk.progress.values() for one in ring if one.number > cursor.progress)
        shown = tuple(sorted(every, key=lambda one: one.number)[:limit])
        is_full = len(shown) == limit
        position = end._replace(progress=shown[-1].number) if is_full else end
        return Changes(cursor=position, runs=runs, records=heads, progress=shown, has_more=is_full)

    def _states(self) -> list[State]:
        return sorted(self._disk.states(), key=_age)


def _age(state: State) -> tuple[float, str]:
    return state.requested_at, state.run


def _root(state: State) -> str:
    return state.run if state.lineage is None else state.lineage.root_id
