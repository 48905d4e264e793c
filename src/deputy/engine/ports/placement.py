"""The placement ports: which worker carries out which run. History and the fence stay the journal's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from deputy.engine.ports.durable import L

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    from deputy.engine.ports.durable import RunStart

    CarryOut: TypeAlias = Callable[[str, int], Awaitable[None]]
    """Works on a run for one of its placements, by their number, until it has ended or only waits."""


class Dispatch(Protocol):
    """An engine that hands placed runs to workers.

    The journal puts a placement into the engine's queue inside its own transaction: by a function of the store
    (`enqueue`), so that the process that submits, sends or ends a run needs no client of the engine.
    """

    @property
    def judges_liveness(self) -> bool:
        """Whether the engine notices dead workers itself; if not, the journal's heartbeats do."""
        ...

    async def work(
        self,
        carry_out: CarryOut,
        *,
        queues: Sequence[str],
        slots: int,
        stop: asyncio.Event,
        is_ready: Callable[[], None],
    ) -> None:
        """Claim and carry out runs, at most `slots` of each queue at once, until `stop` is set and all are done.

        `is_ready` is called when it begins to claim.
        """
        ...

    async def forget(self) -> int:
        """Delete what the engine keeps of placements that are over; how many."""
        ...


class PlacingJournal(Protocol[L]):
    """A journal whose runs can be carried out by workers."""

    async def begin_placed(self, run: str, event: RunStart, queue: str) -> bool:
        """Create a run with its first record and place it, in one transaction; False if the run exists."""
        ...

    async def place(self, run: str) -> bool | None:
        """Place a live run that no process works on; None when the run stays with its process."""
        ...

    async def hand_over(self, lease: L) -> None:
        """Release a run and place it, in one transaction."""
        ...

    async def park(self, lease: L, awaits: Sequence[str]) -> bool:
        """Release a run until a message comes or one of these children ends; False when that has happened already."""
        ...

    async def acquire_placed(self, run: str, number: int) -> L | None:
        """Take the lease of a run for a placement; None when another placement or an end came first."""
        ...

    async def sweep(self) -> tuple[int, int]:
        """Place again what silent processes own, and what was claimed and never begun; how many of each."""
        ...
