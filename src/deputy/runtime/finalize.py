"""From a flow that was stopped, or that failed, to the outcome of its run: there always is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from deputy.core.errors import Error
from deputy.core.events import CANCEL, CancelRequested
from deputy.core.outcome import Cancelled, Failed, Partial, shortened
from deputy.core.results import Result
from deputy.engine.partial_result import stopped_late, with_all_below
from deputy.engine.ports import L
from deputy.runtime.active_run import cancel_key
from deputy.runtime.storage_failures import failed_by

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from deputy.core.errors import StorageError
    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.engine.ports import Journal, Worktree, World
    from deputy.runtime.active_run import ActiveRun
    from deputy.runtime.cancellation import Canceller
    from deputy.runtime.completions import Completions


async def keep_no_worktree(_place: Worktree, _label: str, outcome: Outcome) -> Outcome:
    """What is kept of a run's own place where nobody has one."""
    return outcome


class Finalizer(Generic[L]):
    """Brings the runs at work here to their outcomes."""

    def __init__(
        self,
        journal: Journal[L],
        world: World,
        endings: Completions[L],
        stopping: Canceller[L],
        keep: Callable[[Worktree, str, Outcome], Awaitable[Outcome]],
    ) -> None:
        self._journal = journal
        self._world = world
        self._endings = endings
        self._stopping = stopping
        self._keep = keep
        """Gives an outcome what a run that was stopped has done in a place of its own."""

    async def completed_outcome(self, work: ActiveRun[L], ending: Outcome) -> Outcome:
        """An ending with what is not the flow's own: what it left in its place, and what those below it used."""
        partial, state = work.context.partial, work.lease.state
        if partial.place is not None:
            ending = await self._keep(partial.place, state.label, ending)
        elif not ending.branch:
            ending = partial.with_place(ending)
        return with_all_below(ending, await self._below(state))

    async def _below(self, state: State) -> Sequence[State]:
        return await self._journal.descendants(state.run) if state.counts.children else ()

    async def _found(self, work: ActiveRun[L], *, is_late: bool = False) -> dict[str, Any]:
        """What a run has found whose flow stopped, when nothing of it goes on any more."""
        # The flow begins nothing after this, and what it began last, a child perhaps, is durable when this is.
        key = cancel_key(work.lease.state)
        if work.stopped_because:
            await self._journal.append(work.lease, key, CancelRequested(reason=work.stopped_because))
        else:
            await self._journal.receive_message(work.lease, key, CANCEL)
        state = work.lease.state
        if state.counts.children:
            await self._stopping.stop_children(state.run, is_late=is_late)
        return work.context.partial.fields(state, self._world.now())

    async def stopped(self, work: ActiveRun[L]) -> Outcome:
        """The outcome of a run whose flow was interrupted, or never begun, to be ended."""
        # Whoever stops it again must not interrupt its ending.
        is_late, work.is_cancelled = work.is_late, True
        found = await self._found(work, is_late=is_late)
        if is_late and not work.lease.state.is_cancelling:
            return await self._stopped_late(work)
        unknown = " What the call under way had used is not known." if work.context.partial.is_use_unknown else ""
        return Cancelled(**found, summary=f"Cancelled; what was found until then is kept.{unknown}")

    async def failed_by(self, work: ActiveRun[L], trouble: StorageError) -> Outcome:
        """The outcome of a run whose storage failed."""
        return await self.completed_outcome(work, failed_by(trouble, await self._found(work)))

    async def _stopped_late(self, work: ActiveRun[L]) -> Partial:
        state = work.lease.state
        ended = [child for child in await self._below(state) if child.parent == state.run and not child.is_live]
        results = [
            Result(label=child.label, outcome=await self._endings.outcome(child.run, child.round)) for child in ended
        ]
        return stopped_late(work.context.partial, state, results, self._world.now())

    async def failed(self, work: ActiveRun[L], bug: Exception) -> Failed:
        """The outcome of a run whose flow is mistaken: whatever happens, there is one."""
        import traceback

        work.is_cancelled = True
        error = Error(
            type="execution",
            code="INTERNAL_ERROR",
            message=f"{type(bug).__name__}: {bug}",
            recoverable=False,
            recommendation="This is a mistake in Deputy or in one of its plugins: see `deputy errors` for the trace.",
        )
        await self._journal.log(work.lease.run, error, "".join(traceback.format_exception(bug)))
        found = await self._found(work)
        return Failed(**found, summary=shortened(f"It stopped by a mistake of ours: {error.message}"), errors=(error,))
