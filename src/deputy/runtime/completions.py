"""Wait for runs to end, and notify the waiters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic

from deputy.core.errors import StorageCorrupt, StorageError, UnknownRun
from deputy.core.events import AdmissionRefused, Returned
from deputy.engine.ports import L
from deputy.runtime.active_run import CompletedRun, ending_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deputy.core.outcome import Outcome
    from deputy.engine.ports import Journal


class Completions(Generic[L]):
    """The ends of runs in all processes."""

    def __init__(self, journal: Journal[L], is_at_work: Callable[[str], bool]) -> None:
        self._journal = journal
        self._is_at_work = is_at_work
        self._awaited: dict[str, list[asyncio.Future[CompletedRun | None]]] = {}
        self._troubles: dict[str, StorageError] = {}
        """Storage errors of stopped runs that have not ended; raised to their waiters."""

    async def ended(self, run: str) -> CompletedRun:
        """Wait until a run has ended in any process."""
        while True:
            over: asyncio.Future[CompletedRun | None] = asyncio.get_running_loop().create_future()
            self._awaited.setdefault(run, []).append(over)
            try:
                ended = await self.ended_by_now(run) or await over
                if ended is not None:
                    return ended
            finally:
                waiting = self._awaited[run]
                waiting.remove(over)
                if not waiting:
                    del self._awaited[run]

    async def ended_by_now(self, run: str) -> CompletedRun | None:
        """The end of a run; None if it has not ended."""
        if self._is_at_work(run):
            return None
        state = await self._journal.state(run)
        if state is None:
            raise UnknownRun(run)
        if not state.is_live:
            self.forget_trouble(run)
            return CompletedRun(state, await self.outcome(run, state.round))
        if run in self._troubles:
            raise self._troubles[run]
        return None

    async def outcome(self, run: str, number: int) -> Outcome:
        """The outcome of a round."""
        record = await self._journal.get(run, ending_key(number))
        if record is None or not isinstance(record.event, Returned | AdmissionRefused):
            raise UnknownRun(run)
        return record.event.outcome

    @property
    def awaited(self) -> Sequence[str]:
        """Awaited runs that are not active here."""
        return [run for run in self._awaited if not self._is_at_work(run)]

    @property
    def troubled(self) -> Sequence[str]:
        """Runs stopped by a storage error that may continue when storage recovers."""
        return [run for run, trouble in self._troubles.items() if not isinstance(trouble, StorageCorrupt)]

    def notify(self, run: str, ended: CompletedRun | None = None) -> None:
        """Give waiters the end of a run, or let them look again."""
        for over in self._awaited.get(run, ()):
            if not over.done():
                over.set_result(ended)

    def trouble(self, run: str, error: StorageError) -> None:
        """Record the storage error that stopped a run, and notify its waiters."""
        self._troubles[run] = error
        self.notify(run)

    def note_trouble(self, run: str, error: StorageError) -> None:
        """Record a storage error of an inactive run, unless it has one."""
        self._troubles.setdefault(run, error)

    def forget_trouble(self, run: str) -> None:
        """Forget the storage error of a run that is active again or has ended."""
        self._troubles.pop(run, None)
