"""The budgets of one process do what all budgets must."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from deputy.engine.budget import LocalBudgets
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
