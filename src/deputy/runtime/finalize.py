"""Build the outcome of a stopped or failed run; every run gets one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, cast

from deputy.core.errors import Error, LeaseLost, StorageError
from deputy.core.events import CANCEL, TRACE_LENGTH, CancelRequested
from deputy.core.outcome import Cancelled, Failed, Partial, shortened
from deputy.core.results import Result
from deputy.engine.partial_result import stopped_late, with_all_below
from deputy.engine.ports import L
from deputy.runtime.active_run import cancel_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.engine.ports import Journal, Worktree, World
    from deputy.runtime.active_run import ActiveRun
    from deputy.runtime.cancellation import Canceller
    from deputy.runtime.completions import Completions


async def keep_no_worktree(_place: Worktree, _label: str, outcome: Outcome) -> Outcome:
    """The default for engines without worktrees."""
    return outcome


class Finalizer(Generic[L]):
    """Ends runs with an outcome."""

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
        """Adds the changes in the worktree of a stopped run to its outcome."""

    async def completed_outcome(self, work: ActiveRun[L], ending: Outcome) -> Outcome:
        """The outcome with the worktree's changes and the usage of descendants."""
        partial, state = work.context.partial, work.lease.state
        if partial.place is not None:
            ending = await self._keep(partial.place, state.label, ending)
        elif not ending.branch:
            ending = partial.with_place(ending)
        return with_all_below(ending, await self._below(state))

    async def _below(self, state: State) -> Sequence[State]:
        return await self._journal.descendants(state.run) if state.counts.children else ()

    async def _found(self, work: ActiveRun[L], *, is_late: bool = False) -> dict[str, Any]:
        """Stop the descendants of a stopped run and return the outcome fields it has so far."""
        # Nothing begins after this append, and everything begun before it, such as a child, is durable with it.
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
        """The outcome of a run that was cancelled or timed out."""
        # A second stop must not interrupt the ending.
        is_late, work.is_cancelled = work.is_late, True
        found = await self._found(work, is_late=is_late)
        if is_late and not work.lease.state.is_cancelling:
            return await self._stopped_late(work)
        unknown = " The usage of the interrupted call is unknown." if work.context.partial.is_use_unknown else ""
        return Cancelled(**found, summary=f"Cancelled; partial results are kept.{unknown}")

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
        """The outcome of a run whose flow raised an unexpected exception."""
        work.is_cancelled = True
        work.trace = traced(bug)
        return failed_by_bug(bug, await self._found(work))


def failed_by_bug(bug: Exception, found: Mapping[str, Any]) -> Failed:
    """The outcome of a run that met an unexpected exception."""
    error = Error(
        type="execution",
        code="INTERNAL_ERROR",
        message=f"{type(bug).__name__}: {bug}",
        recoverable=False,
        recommendation="This is a bug in Deputy or in one of its plugins: `deputy errors --json` shows the trace.",
    )
    return Failed(**found, summary=shortened(f"Internal error: {error.message}"), errors=(error,))


def traced(bug: Exception) -> str:
    """The end of the stack trace of an exception."""
    import traceback

    return "".join(traceback.format_exception(bug))[-TRACE_LENGTH:]


# --- storage errors ---------------------------------------------------------------------------------------------------


def storage_trouble(error: BaseException) -> LeaseLost | StorageError | None:
    """The storage error in an exception or group; a lost lease comes first."""
    if isinstance(error, LeaseLost | StorageError):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    group = cast("BaseExceptionGroup[BaseException]", error)
    found = [trouble for inner in group.exceptions if (trouble := storage_trouble(inner)) is not None]
    return next((trouble for trouble in found if isinstance(trouble, LeaseLost)), found[0] if found else None)


def failed_by(trouble: StorageError, found: Mapping[str, Any]) -> Failed:
    """The outcome of a run whose storage failed."""
    error = Error(
        type="storage",
        code=_CODES.get(type(trouble).__name__, "STORAGE_FAILED"),
        message=f"{trouble.path}: {trouble.what}.",
        recoverable=trouble.retryable,
        recommendation=trouble.remedy,
    )
    return Failed(**found, summary=shortened(f"Storage failed: {error.message}"), errors=(error,))


_CODES = {
    "StorageFull": "STORAGE_FULL",
    "StorageDenied": "STORAGE_DENIED",
    "StorageCorrupt": "STORAGE_CORRUPT",
    "StorageGone": "STORAGE_GONE",
    "StorageTooNew": "STORAGE_TOO_NEW",
    "StorageBusy": "STORAGE_BUSY",
    "StorageAway": "STORAGE_BUSY",
}
