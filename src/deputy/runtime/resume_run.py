"""A run that has ended works again: in another round, which is begun once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic

from msgspec import UNSET, Raw, json, structs

from deputy.core.errors import LeaseHeld, UnknownRun, UsageError
from deputy.core.events import Resumed
from deputy.core.limits import inherited_deadline
from deputy.engine.ports import L

if TYPE_CHECKING:
    from deputy.core.approval import ApprovalRequest
    from deputy.core.state import State
    from deputy.engine.ports import Journal
    from deputy.runtime.supervisor import RunSupervisor


class ResumeRounds(Generic[L]):
    """Sets runs to work again."""

    def __init__(self, supervisor: RunSupervisor[L], journal: Journal[L]) -> None:
        self._supervisor = supervisor
        self._journal = journal

    async def next(self, run: str, *, force: bool = False) -> int:
        """The round that sets a run to work again: the one it is in, when that goes on or, unless anew, completed."""
        state = await self._journal.state(run)
        if state is None:
            raise UnknownRun(run)
        is_done = state.status == "completed" and not force
        return state.round if state.is_live or is_done else state.round + 1

    async def reach(self, run: str, number: int, message: Any, *, within: float | None) -> None:
        """Have a run in this round: begun by now, going on, or behind it already."""
        state = await self._journal.state(run)
        if state is not None and not state.is_live and state.round < number:
            with suppress(LeaseHeld):
                await self.begin(run, message, within=within)
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
        is_dismissed: bool = False,
    ) -> int:
        """Start another round of a run that has ended; gives its number."""
        if self._supervisor.is_starting(run):
            raise LeaseHeld(run, "this process")
        with self._supervisor.starting(run):
            await self._have_ended(run)
            lease = await self._journal.acquire(run)
            try:
                if is_dismissed:
                    # Somebody may have dismissed or answered it since it was looked at.
                    _check_blocked(lease.state)
                resumed = self._resumed(lease.state, message, seconds, within, request, approval_timeout_seconds)
                resumed = structs.replace(resumed, is_dismissed=is_dismissed)
                await self._journal.append(lease, f"resumed:{resumed.round}", resumed)
                # Who wanted an earlier round stopped does not stop this one.
                self._supervisor.want(run)
                await self._supervisor.resume_run(lease)
            except BaseException:
                await self._supervisor.release(lease)
                raise
            return resumed.round

    async def dismiss(self, run: str) -> None:
        """End a run as cancelled that has ended with a question; one that no longer rests there is left alone."""
        with suppress(LeaseHeld, UnknownRun, UsageError):
            await self.begin(run, None, is_dismissed=True)
            work = self._supervisor.work.get(run)
            if work is not None:
                await work.over()

    async def _have_ended(self, run: str) -> None:
        """Refuse a run that goes on here: taking it up again would take it from whoever is at work on it."""
        work = self._supervisor.work.get(run)
        if work is not None and work.is_ending:
            await work.over()
        if run in self._supervisor.work:
            raise LeaseHeld(run, "this process")
        state = await self._journal.state(run)
        if state is not None:
            _check_ended(state)

    def _resumed(
        self,
        state: State,
        message: Any,
        seconds: float | None,
        within: float | None,
        request: ApprovalRequest | None,
        approval_timeout_seconds: float | None,
    ) -> Resumed:
        """The beginning of the next round."""
        _check_ended(state)
        # A round has the time that the one before it had, unless another is given, and never its caller's last.
        seconds = state.seconds if seconds is None else seconds
        return Resumed(
            round=state.round + 1,
            message=UNSET if message is None else Raw(json.encode(message)),
            seconds=seconds,
            deadline=None if within is None else inherited_deadline(self._supervisor.world.now(), within, seconds),
            request=request,
            approval_timeout_seconds=approval_timeout_seconds,
        )


def _check_ended(state: State) -> None:
    if state.is_live:
        raise UsageError("ID", state.run, f"this run is {state.status}; only one that has ended is resumed")


def _check_blocked(state: State) -> None:
    if state.status != "blocked":
        raise UsageError("ID", state.run, f"this run is {state.status}; only one that is blocked is dismissed")
