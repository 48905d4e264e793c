"""Hierarchical budgets: a reservation holds in a run's account and in all accounts above it, or in none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from deputy.core.limits import NOTHING, Account, Amount, Budget, Shortfall, reserve_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from deputy.core.limits import BudgetUse, Resource
    from deputy.core.outcome import Usage


class BudgetLedger:
    """The account of a run, linked to its parent's ledger."""

    def __init__(
        self,
        budget: Budget,
        above: BudgetLedger | None = None,
        count_nested: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.account = Account(budget=budget)
        self._counted: set[str] = set()
        self._chain: tuple[BudgetLedger, ...] = (self,) if above is None else (self, *above._chain)
        self.is_capped = any(ledger.account.budget.capped for ledger in self._chain)
        """Whether a cap exists here or above; without one nothing is counted."""
        self._count_nested = count_nested
        self._nested: dict[str, Amount] = {}
        self._has_programs = False

    @property
    def has_programs(self) -> bool:
        """Whether a run of the tree may have started a program, which may run its own Deputy."""
        return self._chain[-1]._has_programs

    def note_programs(self) -> None:
        """Note that a run of the tree may start programs."""
        self._chain[-1]._has_programs = True

    async def refresh(self) -> None:
        """Count the spending of nested runs in started processes."""
        if self.is_capped and self.has_programs and self._count_nested is not None:
            await self._count_nested()

    def recount(self, nested: str, spent: Amount) -> None:
        """Replace the spending counted for a nested run, here and above."""
        for ledger in self._chain:
            ledger.count(spent - ledger._nested.get(nested, NOTHING))
            ledger._nested[nested] = spent

    def is_below(self, other: BudgetLedger) -> bool:
        """Whether this ledger draws on another one."""
        return other in self._chain

    def reserve(self, amount: Amount) -> Shortfall | None:
        """Reserve an amount here and above; nothing is reserved if one account is short."""
        if not self.is_capped:
            return None
        match reserve_all([ledger.account for ledger in self._chain], amount):
            case Shortfall() as shortfall:
                return shortfall
            case accounts:
                for ledger, account in zip(self._chain, accounts, strict=True):
                    ledger.account = account
                return None

    def remaining(self, resource: Resource) -> float | None:
        """The amount that can still be reserved here and above; None without a cap."""
        return min((left for one in self._chain if (left := one.account.remaining(resource)) is not None), default=None)

    def uses(self, refused: Shortfall | None = None) -> tuple[BudgetUse, ...]:
        """The tightest use of each capped resource, here or above; with what a refused call needed."""
        if not self.is_capped:
            return ()
        tightest: dict[Resource, BudgetUse] = {}
        for use in (use for ledger in self._chain for use in ledger.account.uses()):
            known = tightest.get(use.resource)
            if known is None or use.cap - use.used < known.cap - known.used:
                tightest[use.resource] = use
        if refused is not None and (short := tightest.get(refused.resource)) is not None:
            tightest[refused.resource] = structs.replace(short, needed=refused.wanted or 0.0)
        return tuple(tightest.values())

    def commit(self, held: Amount, spent: Amount) -> None:
        """Release a reservation and count what was spent."""
        if not self.is_capped:
            return
        for ledger in self._chain:
            ledger.account = ledger.account.commit(held, spent)

    def count(self, spent: Amount) -> None:
        """Count earlier spending, here only."""
        self.account = self.account.commit(Amount(), spent)

    def count_from(self, run: str, spent: Amount) -> None:
        """Count earlier spending of a descendant, here and above, once per run."""
        for ledger in self._chain:
            if run not in ledger._counted:
                ledger._counted.add(run)
                ledger.count(spent)


def amount(usage: Usage) -> Amount:
    """Usage as an amount."""
    return Amount(tokens=usage.input + usage.output, cost=usage.cost, requests=usage.requests)
