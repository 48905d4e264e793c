"""What every implementation of Budgets must do: cases that need nothing but budgets and runs.

A test suite runs `CASES` one by one: `await case(host)` with a fresh host each. A case fails by `AssertionError`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeAlias

from deputy.core.guard import Policy, Ticket, admit
from deputy.core.limits import Amount, Budget, Shortfall, SpawnCounts
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.engine.ports.budgets import BudgetOpening, Hold, RunSpending, Spawn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from deputy.core.outcome import Rejected
    from deputy.engine.ports.budgets import Budgets, Ledger

    Case: TypeAlias = Callable[["BudgetsHost"], Awaitable[None]]

ROOT, CHILD, OTHER, GRANDCHILD = "sess_1_root00", "sess_1_child0", "sess_1_other0", "sess_1_grand0"
ONE = Amount(requests=1)


class BudgetsHost(Protocol):
    """Budgets, and the runs that have them."""

    @property
    def budgets(self) -> Budgets:
        """The budgets of one process."""
        ...

    async def begin(self, run: str, parent: str | None = None) -> None:
        """Let this process begin a run, before its budget is opened."""
        ...


async def open_run(host: BudgetsHost, run: str, budget: Budget, parent: str | None = None) -> Ledger:
    """Begin a run of the tree and open its budget."""
    await host.begin(run, parent)
    return await host.budgets.open(BudgetOpening(run=run, root=ROOT, parent=parent, budget=budget))


async def spent(ledger: Ledger, amount: Amount) -> Shortfall | None:
    """Reserve an amount and spend it; why not, if it is refused."""
    hold = await ledger.reserve(amount)
    if isinstance(hold, Shortfall):
        return hold
    await ledger.commit(hold, amount)
    return None


async def spawned(
    host: BudgetsHost, run: str, *, max_spawns: int = 64, is_counted: bool = True, budget: Budget | None = None
) -> Ticket | Rejected:
    """Ask for a spawn below the root; with the budget of the root, if it has one."""
    grant = Grant(budget=budget or Budget())
    request = Request(
        session_id=run,
        target=Hop("task:work", "task"),
        prompt=run,
        caller=Lineage.root(ROOT),
        caller_grant=grant,
        is_counted=is_counted,
    )
    policy = Policy(max_spawns=max_spawns)

    def decide(count: int, left: float | None) -> Ticket | Rejected:
        return admit(request, policy, SpawnCounts(spawned=count, spawns_left=left), 0.0)

    spawn = Spawn(run=run, caller=ROOT, root=ROOT, is_counted=is_counted, is_capped=bool(grant.budget.capped))
    return await host.budgets.spawn(spawn, decide)


# --- reservations -----------------------------------------------------------------------------------------------------


async def a_reservation_holds_here_and_above_or_nowhere(host: BudgetsHost) -> None:
    """A child that is short in the account of its caller leaves no hold in its own."""
    root = await open_run(host, ROOT, Budget(requests=3))
    child = await open_run(host, CHILD, Budget(requests=3), ROOT)
    other = await open_run(host, OTHER, Budget(requests=3), ROOT)
    assert isinstance(await child.reserve(Amount(requests=2)), Hold)
    refused = await other.reserve(Amount(requests=2))
    assert isinstance(refused, Shortfall)
    assert (refused.resource, refused.wanted, refused.left) == ("requests", 2, 1)
    await root.refresh()
    assert root.remaining("requests") == 1
    assert isinstance(await other.reserve(ONE), Hold)


async def a_commit_releases_the_hold_and_counts_the_real_use(host: BudgetsHost) -> None:
    """What was reserved and not spent can be reserved again."""
    root = await open_run(host, ROOT, Budget(tokens=100))
    child = await open_run(host, CHILD, Budget(tokens=100), ROOT)
    hold = await child.reserve(Amount(tokens=90))
    assert isinstance(hold, Hold)
    assert isinstance(await root.reserve(Amount(tokens=20)), Shortfall)
    await child.commit(hold, Amount(tokens=30))
    assert isinstance(await root.reserve(Amount(tokens=70)), Hold)
    assert isinstance(await root.reserve(Amount(tokens=1)), Shortfall)


async def many_at_once_never_exceed_the_cap(host: BudgetsHost) -> None:
    """Of fifty reservations at once exactly as many succeed as the cap allows."""
    await open_run(host, ROOT, Budget(requests=20))
    ledgers = [await open_run(host, f"{CHILD}{number}", Budget(requests=20), ROOT) for number in range(5)]
    answers = await asyncio.gather(*(ledger.reserve(ONE) for ledger in ledgers for _ in range(10)))
    assert sum(isinstance(one, Hold) for one in answers) == 20


async def a_tighter_cap_below_holds_too(host: BudgetsHost) -> None:
    """The cap of a task binds before that of its tree, and the uses show the tightest."""
    await open_run(host, ROOT, Budget(requests=10))
    child = await open_run(host, CHILD, Budget(requests=2), ROOT)
    assert await spent(child, ONE) is None
    assert await spent(child, ONE) is None
    refused = await spent(child, ONE)
    assert refused is not None
    ((use,), (shown,)) = child.uses(), child.uses(refused)
    assert (use.resource, use.used, use.cap, use.needed, shown.needed) == ("requests", 2, 2, 0.0, 1)


async def costs_add_up_exactly_and_an_unknown_price_is_refused(host: BudgetsHost) -> None:
    """Ten dimes are a dollar; a call without a known price cannot be held to a cost."""
    root = await open_run(host, ROOT, Budget(cost=1.0))
    assert isinstance(await root.reserve(Amount(requests=1, cost=None)), Shortfall)
    for _ in range(10):
        assert await spent(root, Amount(cost=0.1)) is None
    assert root.remaining("cost") == 0
    assert isinstance(await root.reserve(Amount(cost=0.000000001)), Shortfall)


async def an_unknown_cost_does_not_matter_without_a_cost_cap(host: BudgetsHost) -> None:
    """Other caps count on."""
    root = await open_run(host, ROOT, Budget(requests=2))
    assert await spent(root, Amount(requests=1, cost=None)) is None
    assert await spent(root, Amount(requests=1, cost=None)) is None
    assert isinstance(await root.reserve(ONE), Shortfall)


async def nothing_is_counted_without_a_cap(host: BudgetsHost) -> None:
    """A ledger without a cap admits everything and shows nothing."""
    root = await open_run(host, ROOT, Budget())
    assert not root.is_capped
    assert await spent(root, Amount(tokens=10**12, requests=10**6, cost=None)) is None
    assert (root.uses(), root.remaining("tokens")) == ((), None)


# --- what is on record ------------------------------------------------------------------------------------------------


async def earlier_spending_counts_once_in_all_accounts(host: BudgetsHost) -> None:
    """A tree that is resumed has spent what is on record, however many of its runs are opened."""
    await host.begin(ROOT)
    await host.begin(CHILD, ROOT)
    below = RunSpending(run=CHILD, parent=ROOT, used=Amount(requests=3), is_spawn=True, is_counted=True)
    budget = Budget(requests=10, spawns=5)
    opening = BudgetOpening(
        run=ROOT, root=ROOT, parent=None, budget=budget, used=Amount(requests=2), below=(below,), is_resumed=True
    )
    root = await host.budgets.open(opening)
    assert (root.remaining("requests"), root.remaining("spawns")) == (5, 4)
    child = await host.budgets.open(
        BudgetOpening(run=CHILD, root=ROOT, parent=ROOT, budget=budget, used=Amount(requests=3), is_resumed=True)
    )
    assert (child.remaining("requests"), root.remaining("requests")) == (5, 5)
    assert await spent(child, Amount(requests=5)) is None
    assert isinstance(await root.reserve(ONE), Shortfall)


async def a_run_below_a_run_below_counts_at_the_top(host: BudgetsHost) -> None:
    """Accounts are linked through all levels."""
    await open_run(host, ROOT, Budget(requests=2))
    await open_run(host, CHILD, Budget(requests=2), ROOT)
    grandchild = await open_run(host, GRANDCHILD, Budget(requests=2), CHILD)
    other = await open_run(host, OTHER, Budget(requests=2), ROOT)
    assert await spent(grandchild, ONE) is None
    assert await spent(other, ONE) is None
    assert isinstance(await grandchild.reserve(ONE), Shortfall)


# --- spawns -----------------------------------------------------------------------------------------------------------


async def a_budget_of_spawns_is_kept(host: BudgetsHost) -> None:
    """Of three children at once two are admitted; one that asks again is not counted again."""
    budget = Budget(spawns=2)
    await open_run(host, ROOT, budget)
    children = [f"{CHILD}{number}" for number in range(3)]
    for child in children:
        await host.begin(child, ROOT)
    answers = await asyncio.gather(*(spawned(host, child, budget=budget) for child in children))
    assert sum(isinstance(one, Ticket) for one in answers) == 2
    admitted = children[next(at for at, one in enumerate(answers) if isinstance(one, Ticket))]
    assert isinstance(await spawned(host, admitted, budget=budget), Ticket)
    refused = answers[next(at for at, one in enumerate(answers) if not isinstance(one, Ticket))]
    assert not isinstance(refused, Ticket)
    assert refused.errors[0].code == "SPAWN_BUDGET"


async def the_quota_of_a_tree_is_kept(host: BudgetsHost) -> None:
    """A tree has at most so many spawns; those that a program submits do not count."""
    await open_run(host, ROOT, Budget())
    for number in range(5):
        await host.begin(f"{OTHER}{number}", ROOT)
        assert isinstance(await spawned(host, f"{OTHER}{number}", max_spawns=3, is_counted=False), Ticket)
    children = [f"{CHILD}{number}" for number in range(6)]
    for child in children:
        await host.begin(child, ROOT)
    answers = await asyncio.gather(*(spawned(host, child, max_spawns=3) for child in children))
    assert sum(isinstance(one, Ticket) for one in answers) == 3
    codes = {one.errors[0].code for one in answers if not isinstance(one, Ticket)}
    assert codes == {"SPAWN_QUOTA"}


CASES: tuple[Case, ...] = (
    a_reservation_holds_here_and_above_or_nowhere,
    a_commit_releases_the_hold_and_counts_the_real_use,
    many_at_once_never_exceed_the_cap,
    a_tighter_cap_below_holds_too,
    costs_add_up_exactly_and_an_unknown_price_is_refused,
    an_unknown_cost_does_not_matter_without_a_cost_cap,
    nothing_is_counted_without_a_cap,
    earlier_spending_counts_once_in_all_accounts,
    a_run_below_a_run_below_counts_at_the_top,
    a_budget_of_spawns_is_kept,
    the_quota_of_a_tree_is_kept,
)
