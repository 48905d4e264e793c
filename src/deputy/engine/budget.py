"""Budgets in the memory of one process: a reservation holds in a run's account and in all above it, or in none."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from deputy.core.guard import Ticket
from deputy.core.limits import NOTHING, Account, Amount, Budget, Shortfall, reserve_all
from deputy.engine.ports.budgets import Hold

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from deputy.core.limits import BudgetUse, Resource
    from deputy.core.outcome import Rejected, Usage
    from deputy.engine.ports.budgets import BudgetOpening, Decide, Spawn

SPAWN = Amount(spawns=1)
NO_HOLD = Hold()
"""The hold of a call without a cap."""


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

    async def reserve(self, amount: Amount) -> Hold | Shortfall:
        """Reserve an amount here and above; nothing is reserved if one account is short."""
        if not self.is_capped:
            return NO_HOLD
        await self.refresh()
        match reserve_all([ledger.account for ledger in self._chain], amount):
            case Shortfall() as shortfall:
                return shortfall
            case accounts:
                for ledger, account in zip(self._chain, accounts, strict=True):
                    ledger.account = account
                return Hold(amount=amount)

    def remaining(self, resource: Resource) -> float | None:
        """The amount that can still be reserved here and above; None without a cap."""
        return least_remaining([ledger.account for ledger in self._chain], resource)

    def uses(self, refused: Shortfall | None = None) -> tuple[BudgetUse, ...]:
        """The tightest use of each capped resource, here or above; with what a refused call needed."""
        return tightest_uses([ledger.account for ledger in self._chain], refused) if self.is_capped else ()

    async def commit(self, hold: Hold, spent: Amount) -> None:
        """Release a reservation and count what was spent."""
        if not self.is_capped:
            return
        for ledger in self._chain:
            ledger.account = ledger.account.commit(hold.amount, spent)

    def count(self, spent: Amount) -> None:
        """Count earlier spending, here only."""
        self.account = self.account.commit(NOTHING, spent)

    def count_from(self, run: str, spent: Amount) -> None:
        """Count earlier spending of a descendant, here and above, once per run."""
        for ledger in self._chain:
            if run not in ledger._counted:
                ledger._counted.add(run)
                ledger.count(spent)

    def count_spawn(self) -> None:
        """Count a spawn, here and above."""
        if self.is_capped:
            for ledger in self._chain:
                ledger.count(SPAWN)


class LocalBudgets:
    """The budgets of the trees of one process."""

    def __init__(self, nested: Callable[[str], Awaitable[Sequence[tuple[str, str, Amount]]]] | None = None) -> None:
        """`nested` reads the nested runs of a tree: id, the run that started its process, and the amount it counts."""
        self._read_nested = nested
        self.ledgers: dict[str, BudgetLedger] = {}
        self.spawned: dict[str, set[str]] = {}
        """By root, the admitted runs; kept while a run of the tree is active."""
        self.counted: Counter[str] = Counter()
        """By root, how many of them count against the quota."""
        self._nested_spawns: dict[str, dict[str, int]] = {}
        """By root, the spawns that each nested run counts for."""

    async def open(self, opening: BudgetOpening) -> BudgetLedger:
        """The ledger of a run, with earlier spending of the run and its descendants."""
        run, parent = opening.run, opening.parent
        if parent is None:
            for one in opening.below:
                if one.is_spawn:
                    self._count_spawn(run, one.run, is_counted=one.is_counted)
        if (kept := self.ledgers.get(run)) is not None:
            return kept
        above = None if parent is None else self.ledgers.get(parent)
        ledger = self.ledgers[run] = BudgetLedger(opening.budget, above, partial(self.refresh, opening.root))
        if opening.is_resumed:
            # Programs started before this process took over may still spend.
            ledger.note_programs()
        ledger.count(opening.used)
        if above is not None:
            above.count_from(run, opening.used)
        for one in opening.below:
            ledger.count_from(one.run, one.used + SPAWN if one.is_spawn else one.used)
        return ledger

    async def spawn(self, spawn: Spawn, decide: Decide) -> Ticket | Rejected:
        """Decide about a spawn and count it."""
        ledger = self.ledgers.get(spawn.caller)
        # A run admitted before a crash is already counted in its caller's ledger.
        is_paid = ledger is None or spawn.run in self.spawned.get(spawn.root, ())
        left = None if ledger is None or is_paid else ledger.remaining("spawns")
        decision = decide(self.counted[spawn.root], left)
        if isinstance(decision, Ticket):
            if ledger is not None and not is_paid:
                ledger.count_spawn()
            self.restore(spawn)
        return decision

    def restore(self, spawn: Spawn) -> None:
        """Count an admitted run, again after a restart or in a later round."""
        self._count_spawn(spawn.root, spawn.run, is_counted=spawn.is_counted)

    def _count_spawn(self, root: str, run: str, *, is_counted: bool) -> None:
        admitted = self.spawned.setdefault(root, set())
        if run not in admitted:
            admitted.add(run)
            self.counted[root] += is_counted

    async def refresh(self, root: str) -> None:
        """Update the counts of nested runs, which processes of this tree have started."""
        ledger = self.ledgers.get(root)
        if self._read_nested is None or ledger is None or not ledger.has_programs:
            return
        known = self._nested_spawns.setdefault(root, {})
        for nested, above, spent in await self._read_nested(root):
            self.ledgers.get(above, ledger).recount(nested, spent)
            self.counted[root] += spent.spawns - known.get(nested, 0)
            known[nested] = spent.spawns

    def set_aside(self, run: str) -> None:
        """Keep the ledger of a suspended run only if it has a cap."""
        ledger = self.ledgers.get(run)
        if ledger is not None and not ledger.is_capped:
            del self.ledgers[run]

    def drop(self, run: str) -> None:
        """Remove a run's ledger and those of its stopped descendants."""
        ledger = self.ledgers.pop(run, None)
        if ledger is not None and ledger.is_capped:
            for below in [name for name, other in self.ledgers.items() if other.is_below(ledger)]:
                del self.ledgers[below]

    def forget_tree(self, root: str) -> bool:
        """Forget the spawn counts of a tree, unless its root is open."""
        if root in self.ledgers:
            return False
        self.spawned.pop(root, None)
        self.counted.pop(root, None)
        self._nested_spawns.pop(root, None)
        return True


def least_remaining(accounts: Sequence[Account], resource: Resource) -> float | None:
    """The amount that can still be reserved in all accounts; None without a cap."""
    return min((left for one in accounts if (left := one.remaining(resource)) is not None), default=None)


def tightest_uses(accounts: Sequence[Account], refused: Shortfall | None = None) -> tuple[BudgetUse, ...]:
    """The tightest use of each capped resource; with what a refused call needed."""
    tightest: dict[Resource, BudgetUse] = {}
    for use in (use for account in accounts for use in account.uses()):
        known = tightest.get(use.resource)
        if known is None or use.cap - use.used < known.cap - known.used:
            tightest[use.resource] = use
    if refused is not None and (short := tightest.get(refused.resource)) is not None:
        tightest[refused.resource] = structs.replace(short, needed=refused.wanted or 0.0)
    return tuple(tightest.values())


def amount(usage: Usage) -> Amount:
    """Usage as an amount."""
    return Amount(tokens=usage.input + usage.output, cost=usage.cost, requests=usage.requests)
