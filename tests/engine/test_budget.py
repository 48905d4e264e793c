"""The budgets of one process do what all budgets must."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from deputy.core.limits import Amount, Budget
from deputy.engine.budget import LocalBudgets
from deputy.engine.ports.budgets import BudgetOpening, RunSpending
from deputy.testing import budgets_suite
from deputy.testing.budgets_suite import BudgetsHost


class LocalHost:
    def __init__(self) -> None:
        self.budgets = LocalBudgets()

    async def begin(self, run: str, parent: str | None = None) -> None:
        """A run needs nothing here."""


@pytest.mark.rule("budget")
@pytest.mark.parametrize("case", budgets_suite.CASES, ids=lambda case: case.__name__)
def test_budgets_in_memory_pass_the_suite(case: Callable[[BudgetsHost], Awaitable[None]]) -> None:
    async def work() -> None:
        await case(LocalHost())

    asyncio.run(work())


@pytest.mark.rule("guard.quota")
@pytest.mark.rule("budget")
def test_a_resumed_tree_has_spent_and_spawned_what_it_had_before():
    child = RunSpending(run="child", parent="top", used=Amount(tokens=30), is_spawn=True, is_counted=True)
    refused = RunSpending(run="refused", parent="top", used=Amount(), is_spawn=False, is_counted=True)
    opening = BudgetOpening(
        run="top",
        root="top",
        parent=None,
        budget=Budget(tokens=100, spawns=4),
        used=Amount(tokens=50),
        below=(child, refused),
        is_resumed=True,
    )
    budgets = LocalBudgets()
    ledger = asyncio.run(budgets.open(opening))
    assert (ledger.remaining("tokens"), ledger.remaining("spawns")) == (20, 3)
    assert (budgets.counted["top"], budgets.spawned["top"]) == (1, {"child"})
