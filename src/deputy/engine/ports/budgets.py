"""The budgets port: the accounts of a tree, in the memory of one process or in the store that all workers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

from deputy.core.limits import NOTHING, Amount, Budget

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.core.guard import Ticket
    from deputy.core.limits import BudgetUse, Resource, Shortfall
    from deputy.core.outcome import Rejected

    Decide: TypeAlias = Callable[[int, float | None], Ticket | Rejected]
    """Admits a spawn, given how many the tree has and how many its spawn budgets have left. Pure: it may run twice."""


class Hold(Struct, frozen=True, kw_only=True, gc=False):
    """An amount that is reserved until it is committed."""

    amount: Amount = NOTHING
    number: int = 0
    """Its number in a store."""


class RunSpending(Struct, frozen=True, kw_only=True):
    """What a run has used, by its records."""

    run: str
    parent: str | None
    used: Amount
    is_spawn: bool
    """Whether it was admitted, and so counts as a spawn of its caller."""
    is_counted: bool
    """Whether it counts against the spawn quota of its tree."""


class BudgetOpening(Struct, frozen=True, kw_only=True):
    """A run whose budget is opened, with what it and the runs below it have used before."""

    run: str
    root: str
    parent: str | None
    budget: Budget
    used: Amount = NOTHING
    below: tuple[RunSpending, ...] = ()
    is_resumed: bool = False
    """Whether it has worked before: programs that it has started may still spend."""


class Spawn(Struct, frozen=True, kw_only=True):
    """A run that asks to be admitted below its caller."""

    run: str
    caller: str
    root: str
    is_counted: bool = True
    is_capped: bool = False
    """Whether a budget of the caller or above has a cap."""


class Ledger(Protocol):
    """The account of a run and those above it."""

    @property
    def is_capped(self) -> bool:
        """Whether a cap exists here or above; without one nothing is counted."""
        ...

    def note_programs(self) -> None:
        """Note that a run of the tree may start programs, which may run their own Deputy."""
        ...

    async def refresh(self) -> None:
        """Count what other processes have spent meanwhile."""
        ...

    async def reserve(self, amount: Amount) -> Hold | Shortfall:
        """Reserve an amount here and above; nothing is reserved if one account is short."""
        ...

    async def commit(self, hold: Hold, spent: Amount) -> None:
        """Release a reservation and count what was spent. The record of the call is never durable before this."""
        ...

    def remaining(self, resource: Resource) -> float | None:
        """The amount that can still be reserved here and above; None without a cap."""
        ...

    def uses(self, refused: Shortfall | None = None) -> tuple[BudgetUse, ...]:
        """The tightest use of each capped resource, here or above; with what a refused call needed."""
        ...


class Budgets(Protocol):
    """The ledgers and spawn counts of all trees."""

    async def open(self, opening: BudgetOpening) -> Ledger:
        """The ledger of a run. What is on record counts once, whichever process opens it."""
        ...

    async def spawn(self, spawn: Spawn, decide: Decide) -> Ticket | Rejected:
        """Decide about a spawn and count it, in one operation; a run that is counted already is not counted again."""
        ...

    def restore(self, spawn: Spawn) -> None:
        """Count an admitted run again, in a process that did not admit it."""
        ...

    async def refresh(self, root: str) -> None:
        """Count what processes that the tree has started have spent and spawned."""
        ...

    def set_aside(self, run: str) -> None:
        """A run is suspended: its capped ledger stays, because its descendants pay from it."""
        ...

    def drop(self, run: str) -> None:
        """Forget the ledger of a run that is over, and those below it."""
        ...

    def forget_tree(self, root: str) -> bool:
        """Forget the spawn counts of a tree, unless its root is open; whether they are forgotten."""
        ...
