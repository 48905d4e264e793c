"""What a subagent pays from: its own account and those above it, reserved together or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.limits import NOTHING, Account, Amount, Budget, Shortfall, reserve_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from deputy.core.limits import BudgetUse, Resource
    from deputy.core.outcome import Usage


class BudgetLedger:
    """An account, and the purse of whoever handed the work over."""

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
        """Whether there is a cap here or above; where there is none, nobody asks what was spent."""
        self._count_nested = count_nested
        self._nested: dict[str, Amount] = {}
        self._has_programs = False

    @property
    def has_programs(self) -> bool:
        """Whether a run of the tree may have started a program, which may start a Deputy of its own."""
        return self._chain[-1]._has_programs

    def note_programs(self) -> None:
        """From now on a run of the tree may start programs."""
        self._chain[-1]._has_programs = True

    async def refresh(self) -> None:
        """Count what processes that runs of the tree have started use of the budgets."""
        if self.is_capped and self.has_programs and self._count_nested is not None:
            await self._count_nested()

    def recount(self, nested: str, spent: Amount) -> None:
        """Count here and above what a nested run has reserved or used, in place of what was counted for it before."""
        for ledger in self._chain:
            ledger.count(spent - ledger._nested.get(nested, NOTHING))
            ledger._nested[nested] = spent

    def is_below(self, other: BudgetLedger) -> bool:
        """Whether what is paid from here is paid from another purse too."""
        return other in self._chain

    def reserve(self, amount: Amount) -> Shortfall | None:
        """Hold an amount here and in every purse above; nothing is held when one of them is short."""
        if not self.is_capped:
            return None
        match reserve_all([ledger.account for ledger in self._chain], amount):
            case Shortfall() as shortfall:
                return shortfall
            case accounts:
                for ledger, account in zip(self._chain, accounts, strict=True):
                    ledger.account = account
                return None

    def remaining(self, resource: Resource) -> int | None:
        """What can still be reserved of a resource, here and above; None where there is no cap."""
        return min((left for one in self._chain if (left := one.account.remaining(resource)) is not None), default=None)

    def uses(self) -> tuple[BudgetUse, ...]:
        """How much is used of each resource that has a cap, here or above: where the least is left."""
        if not self.is_capped:
            return ()
        tightest: dict[Resource, BudgetUse] = {}
        for use in (use for ledger in self._chain for use in ledger.account.uses()):
            known = tightest.get(use.resource)
            if known is None or use.cap - use.used < known.cap - known.used:
                tightest[use.resource] = use
        return tuple(tightest.values())

    def commit(self, held: Amount, spent: Amount) -> None:
        """Give a hold back and spend what was really used."""
        if not self.is_capped:
            return
        for ledger in self._chain:
            ledger.account = ledger.account.commit(held, spent)

    def count(self, spent: Amount) -> None:
        """Count here, and not above, what was used before this purse was opened."""
        self.account = self.account.commit(Amount(), spent)

    def count_from(self, run: str, spent: Amount) -> None:
        """Count here and above what a run below used before its purse was opened: once, as the rest comes by itself."""
        for ledger in self._chain:
            if run not in ledger._counted:
                ledger._counted.add(run)
                ledger.count(spent)


def amount(usage: Usage) -> Amount:
    """What a model call used, as accounts count it."""
    return Amount(tokens=usage.input + usage.output, cost=usage.cost, requests=usage.requests)
