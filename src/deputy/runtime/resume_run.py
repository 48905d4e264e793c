"""Start further rounds of ended runs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic

from msgspec import UNSET, Raw, json

from deputy.core.errors import LeaseHeld, UnknownRun, UsageError
from deputy.core.events import NO_CHANGES, Resumed
from deputy.core.limits import inherited_deadline
from deputy.engine.ports import L

if TYPE_CHECKING:
    from deputy.core.approval import ApprovalRequest
    from deputy.core.events import ResumeChanges
    from deputy.core.state import State
    from deputy.engine.ports import Journal
    from deputy.runtime.supervisor import RunSupervisor


class ResumeRounds(Generic[L]):
    """Starts rounds, each once."""

    def __init__(self, supervisor: RunSupervisor[L], journal: Journal[L]) -> None:
        self._supervisor = supervisor
        self._journal = journal

    async def next(self, run: str, *, force: bool = False) -> int:
        """The target round: the current one if it is live or (without `force`) completed, else the next."""
        state = await self._journal.state(run)
        if state is None:
            raise UnknownRun(run)
        is_done = state.status == "completed" and not force
        return state.round if state.is_live or is_done else state.round + 1

    async def reach(self, run: str, number: int, message: Any, *, within: float | None, changes: ResumeChanges) -> None:
        """Make sure that a run has reached this round: start it, resume it, or do nothing if it is past it."""
        state = await self._journal.state(run)
        if state is not None and not state.is_live and state.round < number:
            with suppress(LeaseHeld):
                await self.begin(run, message, within=within, changes=changes)
        else:
            await self._supervisor.ensure_running(run)

    async def begin(
        self,
        run: str,
        message: Any,
        *,
        seconds: float | None = None,
        within: float | None = None,
        request: ApprovalRequest | None = None,
        approval_timeout_seconds: float | None = None,
        changes: ResumeChanges = NO_CHANGES,
        is_dismissed: bool = False,
    ) -> int:
        """Start another round of an ended run; returns its number."""
        if self._supervisor.is_starting(run):
            raise LeaseHeld(run, "this process")
        with self._supervisor.starting(run):
            await self._have_ended(run)
            lease = await self._journal.acquire(run)
            try:
                if is_dismissed:
                    # The run may have been dismissed or answered since it was read.
                    _check_blocked(lease.state)
                _check_ended(lease.state)
                # A round gets the time of the one before unless another is given, and never more than its caller has.
                limit = lease.state.seconds if seconds is None else seconds
                now = self._supervisor.world.now()
                resumed = Resumed(
                    round=lease.state.round + 1,
                    message=UNSET if message is None else Raw(json.encode(message)),
                    seconds=limit,
                    deadline=None if within is None else inherited_deadline(now, within, limit),
                    request=request,
                    approval_timeout_seconds=approval_timeout_seconds,
                    changes=changes,
                    is_dismissed=is_dismissed,
                )
                await self._journal.append(lease, f"resumed:{resumed.round}", resumed)
                # A cancel of an earlier round does not apply to this one.
                self._supervisor.want(run)
                await self._supervisor.starts.begin_round(lease)
            except BaseException:
                await self._supervisor.release(lease)
                raise
            return resumed.round

    async def dismiss(self, run: str) -> None:
        """End a blocked run as cancelled; a run that is no longer blocked is left alone."""
        with suppress(LeaseHeld, UnknownRun, UsageError):
            await self.begin(run, None, is_dismissed=True)
            work = self._supervisor.work.get(run)
            if work is not None:
                await work.over()

    async def _have_ended(self, run: str) -> None:
        """Refuse a run that is active in this process."""
        work = self._supervisor.work.get(run)
        if work is not None and work.is_ending:
            await work.over()
        if run in self._supervisor.work:
            raise LeaseHeld(run, "this process")
        state = await self._journal.state(run)
        if state is not None:
            _check_ended(state)


def _check_ended(state: State) -> None:
    if state.is_live:
        raise UsageError("ID", state.run, f"this run is {state.status}; only an ended run can be resumed")


def _check_blocked(state: State) -> None:
    if state.status != "blocked":
        raise UsageError("ID", state.run, f"this run is {state.status}; only a blocked run can be dismissed")
