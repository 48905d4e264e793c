"""One active run of this process."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, NamedTuple

from deputy.engine.ports import L

if TYPE_CHECKING:
    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.runtime.context import DurableRunContext

_OVER_SECONDS = 10.0
"""The maximum wait for a stopped run to end."""


class CompletedRun(NamedTuple):
    """The state and outcome of an ended run."""

    state: State
    outcome: Outcome


class HostedRuns(NamedTuple):
    """What an engine holds now, and what it has lost and repeated so far."""

    working: int
    waiting: int
    fenced: int
    """Runs whose lease another process took."""
    repeated: int
    """Steps that were begun again."""


class ActiveRun(Generic[L]):
    """An active run: its task, its context, and why it is being stopped."""

    def __init__(self, context: DurableRunContext[L], lease: L) -> None:
        self.context = context
        self.lease = lease
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self.is_parking = False
        self.is_handing_over = False
        """Whether another worker must continue the run."""
        self.parking: asyncio.TimerHandle | None = None
        """The timer of the next check whether the run only waits."""
        self.waits_since = 0.0
        self.awaited: tuple[str, ...] = ()
        """The children that it waited for when it was suspended."""
        self.is_cancelled = False
        self.stopped_because = ""
        """The reason given by a stopping ancestor, if no message was sent."""
        self.is_late = False
        self.is_ending = False
        self.trace = ""
        """The stack trace of the exception that ended the run."""
        self.is_over = asyncio.Event()
        self.is_settled = asyncio.Event()
        """Set when the run is over, or first only waits: it needs no slot of a worker then."""

    @property
    def only_waits(self) -> bool:
        """Whether the run only waits for messages or children, and no message has arrived."""
        waiting, joining = self.context.waiting, self.context.joining
        return bool(waiting or joining) and not self.context.busy and not any(come.done() for come in waiting)

    @property
    def is_stopping(self) -> bool:
        """Whether the run is already ending."""
        return self.is_cancelled or self.is_late or self.is_ending

    def cancel(self) -> None:
        """End the run as cancelled."""
        if not self.is_stopping:
            self.is_cancelled = True
            self._stop()

    def end_late(self) -> None:
        """End the run at its deadline."""
        if not self.is_stopping:
            self.is_late = True
            self._stop()

    def abandon(self) -> None:
        """Stop work on a run whose lease is lost."""
        self.context.is_leaving = True
        if self.task is not None:
            self.task.cancel()

    def hand_over(self, *, at_once: bool = False) -> None:
        """Leave the run to another worker: as soon as no step is under way, or at once."""
        context = self.context
        context.is_draining = True
        if self.is_stopping or self.is_parking or not (at_once or not context.busy):
            return
        self.is_handing_over, context.is_leaving = True, True
        if self.has_begun and self.task is not None:
            self.task.cancel()

    def _stop(self) -> None:
        """Cancel the task; a task that has not begun checks the flags itself, and would never record an end."""
        self.context.is_stopped = True
        if self.has_begun and self.task is not None:
            self.task.cancel()

    async def over(self) -> None:
        """Wait until the run is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_OVER_SECONDS):
                await self.is_over.wait()


def ending_key(number: int) -> str:
    """The key of a round's outcome."""
    return f"returned:{number}"


def cancel_key(state: State) -> str:
    """The key of the request to cancel the current round."""
    return f"cancel_requested:{state.round}"
