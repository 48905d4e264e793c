"""One run at work in this process, and the end that it comes to."""

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
"""How long anybody here waits for a run that was stopped: one that does not stop is not waited for."""


class CompletedRun(NamedTuple):
    """A run that has ended: where it stands, and how it ended."""

    state: State
    outcome: Outcome


class ActiveRun(Generic[L]):
    """A run at work: its task, its context, and why the task is being stopped."""

    def __init__(self, context: DurableRunContext[L], lease: L) -> None:
        self.context = context
        self.lease = lease
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self.is_parking = False
        self.parking: asyncio.TimerHandle | None = None
        """When it is looked at whether it still only waits."""
        self.waits_since = 0.0
        self.awaited: tuple[str, ...] = ()
        """The children that it was waiting for when it was put aside."""
        self.is_cancelled = False
        self.stopped_because = ""
        """Why a run above it has stopped it, when that run's own end says so and nothing was sent."""
        self.is_late = False
        self.is_ending = False
        self.is_over = asyncio.Event()

    @property
    def only_waits(self) -> bool:
        """Whether nothing goes on but waiting for messages, none of which has come, or for children."""
        waiting, joining = self.context.waiting, self.context.joining
        return bool(waiting or joining) and not self.context.busy and not any(come.done() for come in waiting)

    @property
    def is_stopping(self) -> bool:
        """Whether it comes to its end already, so that nobody need stop it."""
        return self.is_cancelled or self.is_late or self.is_ending

    def cancel(self) -> None:
        """Have it end as cancelled."""
        if not self.is_stopping:
            self.is_cancelled = True
            self._stop()

    def end_late(self) -> None:
        """Have it end as one whose time is up."""
        if not self.is_stopping:
            self.is_late = True
            self._stop()

    def _stop(self) -> None:
        """Interrupt the flow; one that has not begun looks by itself, and cancelled before that would never end."""
        self.context.is_stopped = True
        if self.has_begun and self.task is not None:
            self.task.cancel()

    async def over(self) -> None:
        """Wait until nothing of it goes on."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_OVER_SECONDS):
                await self.is_over.wait()


def ending_key(number: int) -> str:
    """The key of a round's end."""
    return f"returned:{number}"


def cancel_key(state: State) -> str:
    """The key of the wish that a run's round be stopped."""
    return f"cancel_requested:{state.round}"
