"""Budgets in a Postgres store: the same suite as in memory, and what several processes share."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.postgres import emptied_database
from tests.support.scripts import talk, turn

from deputy.core.errors import LeaseLost
from deputy.core.limits import Amount, Budget, Shortfall
from deputy.core.task import Task
from deputy.engine.ports.budgets import BudgetOpening, Hold
from deputy.journal.postgres.postgres_budgets import PostgresBudgets
from deputy.journal.postgres.postgres_journal import PostgresJournal
from deputy.journal.postgres.postgres_store import PostgresStore
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress
from deputy.journal.retention import prune
from deputy.testing import budgets_suite
from deputy.testing.budgets_suite import CHILD, ONE, OTHER, ROOT, open_run, spawned, spent
from deputy.testing.queries_suite import completed, opened, requested

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from tests.support.house import House

    from deputy.engine.ports.budgets import Ledger
    from deputy.testing.budgets_suite import BudgetsHost


class PostgresBudgetsHost:
    """A process with runs in a store."""

    def __init__(self, journal: PostgresJournal) -> None:
        self.journal = journal
        self.budgets = PostgresBudgets(journal)
        self.leases: dict[str, Any] = {}

    async def begin(self, run: str, parent: str | None = None) -> None:
        if parent is None:
            lease = await self.journal.begin(run, opened(run))
        else:
            lease = await self.journal.spawn(self.leases[parent], f"spawn:{run}", run, requested(run, ROOT))
        assert lease is not None
        self.leases[run] = lease

    async def take(self, run: str) -> None:
        """Take over a run of a process that is silent."""
        self.leases[run] = await self.journal.acquire(run)

    async def reopened(self, run: str, budget: Budget, parent: str | None = None, used: Amount | None = None) -> Ledger:
        opening = BudgetOpening(
            run=run, root=ROOT, parent=parent, budget=budget, used=used or Amount(), is_resumed=True
        )
        return await self.budgets.open(opening)


@asynccontextmanager
async def process_on(url: str, folder: Path) -> AsyncGenerator[PostgresBudgetsHost]:
    settings = {"synchronous_commit": "off"}
    async with await asyncio.to_thread(PostgresJournal, StoreAddress(url), folder, settings=settings) as journal:
        yield PostgresBudgetsHost(journal)


def rows(url: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(PostgresSession(StoreAddress(url))) as session:
        return session.fetch(query, *values)


def silence(url: str, host: PostgresBudgetsHost) -> None:
    """Let a process look silent for an hour."""
    rows(url, "UPDATE owners SET beat = beat - interval '1 hour' WHERE owner = $1", host.journal.owner)


@pytest.mark.rule("store.budget")
@pytest.mark.parametrize("case", budgets_suite.CASES, ids=lambda case: case.__name__)
def test_budgets_in_postgres_pass_the_suite(case: Callable[[BudgetsHost], Awaitable[None]], tmp_path: Path) -> None:
    async def work() -> None:
        async with process_on(emptied_database(), tmp_path) as host:
            await case(host)

    asyncio.run(work())


@pytest.mark.rule("store.budget")
def test_two_workers_keep_the_cap_of_one_tree(tmp_path: Path) -> None:
    budget = Budget(requests=100)

    async def calls(ledger: Ledger) -> int:
        made = 0
        while await spent(ledger, ONE) is None:
            made += 1
        return made

    async def work(url: str) -> tuple[list[int], float | None]:
        async with process_on(url, tmp_path) as one, process_on(url, tmp_path) as two:
            root = await open_run(one, ROOT, budget)
            ledgers: list[Ledger] = []
            for number in range(4):
                child = f"{CHILD}{number}"
                await one.begin(child, ROOT)
                await one.journal.release(one.leases[child])
                worker = (one, two)[number % 2]
                await worker.take(child)
                ledgers.append(await worker.reopened(child, budget, ROOT))
            made = await asyncio.gather(*map(calls, ledgers))
            await root.refresh()
            return made, root.remaining("requests")

    made, left = asyncio.run(work(emptied_database()))
    assert (sum(made), left) == (100, 0)
    assert made[0] + made[2]
    assert made[1] + made[3]


@pytest.mark.rule("store.budget")
def test_two_workers_keep_the_spawn_quota_of_one_tree(tmp_path: Path) -> None:
    async def work(url: str) -> int:
        async with process_on(url, tmp_path) as one, process_on(url, tmp_path) as two:
            await open_run(one, ROOT, Budget())
            asking: list[Any] = []
            for number in range(10):
                child = f"{CHILD}{number}"
                await one.begin(child, ROOT)
                worker = (one, two)[number % 2]
                if worker is two:
                    await one.journal.release(one.leases[child])
                    await two.take(child)
                asking.append(spawned(worker, child, max_spawns=4))
            answers = await asyncio.gather(*asking)
            return sum(hasattr(one, "grant") for one in answers)

    assert asyncio.run(work(emptied_database())) == 4


@pytest.mark.rule("store.budget")
def test_the_hold_of_a_run_that_is_taken_over_falls(tmp_path: Path) -> None:
    budget = Budget(requests=3)

    async def work(url: str) -> None:
        async with process_on(url, tmp_path) as dead, process_on(url, tmp_path) as other:
            await open_run(dead, ROOT, budget)
            child = await open_run(dead, CHILD, budget, ROOT)
            assert await spent(child, ONE) is None
            lost = await child.reserve(Amount(requests=2))
            assert isinstance(lost, Hold)
            await dead.begin(OTHER, ROOT)
            await dead.journal.release(dead.leases[OTHER])
            await other.take(OTHER)
            sibling = await other.reopened(OTHER, budget, ROOT)
            # Until the run is taken over, its call may still be under way.
            assert isinstance(await sibling.reserve(ONE), Shortfall)
            silence(url, dead)
            await other.take(CHILD)
            # The sibling does not wait until the account of the run is opened again.
            assert isinstance(await sibling.reserve(ONE), Hold)
            taken = await other.reopened(CHILD, budget, ROOT, used=ONE)
            assert taken.remaining("requests") == 1
            # The process that lost the run counts nothing any more.
            await child.commit(lost, Amount(requests=2))
            with pytest.raises(LeaseLost):
                await child.reserve(ONE)
            await taken.refresh()
            assert taken.remaining("requests") == 1
            assert await spent(taken, ONE) is None
            assert isinstance(await sibling.reserve(ONE), Shortfall)

    asyncio.run(work(emptied_database()))


@pytest.mark.rule("store.budget")
@pytest.mark.parametrize("recorded", [1, 2])
def test_a_run_that_is_taken_over_pays_what_is_on_record(recorded: int, tmp_path: Path) -> None:
    budget = Budget(requests=10)

    async def work(url: str) -> list[float | None]:
        async with process_on(url, tmp_path) as dead, process_on(url, tmp_path) as other:
            await open_run(dead, ROOT, budget)
            child = await open_run(dead, CHILD, budget, ROOT)
            for _ in range(2):
                assert await spent(child, ONE) is None
            await dead.journal.wait_durable(dead.leases[CHILD])
            silence(url, dead)
            await other.take(CHILD)
            left: list[float | None] = []
            # Its caller opens it again in every round.
            for _ in range(2):
                taken = await other.reopened(CHILD, budget, ROOT, used=Amount(requests=recorded))
                left.append(taken.remaining("requests"))
            return left

    # A second call that is not on record is made again, and then paid.
    assert asyncio.run(work(emptied_database())) == [10 - recorded, 10 - recorded]


@pytest.mark.rule("store.budget")
def test_a_run_that_is_taken_again_has_no_old_holds(tmp_path: Path) -> None:
    budget = Budget(requests=5)

    async def work(url: str) -> list[float | None]:
        async with process_on(url, tmp_path) as host:
            before = await open_run(host, ROOT, budget)
            held, late = await before.reserve(ONE), await before.reserve(ONE)
            assert isinstance(held, Hold)
            assert isinstance(late, Hold)
            await before.commit(held, ONE)
            await host.take(ROOT)
            await before.commit(late, ONE)
            await host.journal.wait_durable(host.leases[ROOT])
            # The call belongs to the lease that is gone, so it counts nothing.
            left = rows(url, "SELECT count(*) FROM holds")[0]
            taken = await host.reopened(ROOT, budget, used=ONE)
            left = [*left, taken.remaining("requests")]
            assert await spent(taken, ONE) is None
            # The record of that call may not be written yet.
            again = await host.reopened(ROOT, budget, used=ONE)
            return [*left, again.remaining("requests")]

    assert asyncio.run(work(emptied_database())) == [1, 4, 3]


@pytest.mark.rule("store.budget")
def test_what_is_spent_is_durable_with_the_record_of_the_call(tmp_path: Path) -> None:
    async def work(url: str) -> list[float]:
        async with process_on(url, tmp_path) as host:
            root = await open_run(host, ROOT, Budget(requests=10))
            hold = await root.reserve(ONE)
            assert isinstance(hold, Hold)
            await root.commit(hold, ONE)
            assert root.remaining("requests") == 9
            await host.journal.wait_durable(host.leases[ROOT])
            return [row[0] for row in rows(url, "SELECT convert_from(own, 'utf8')::json->>'requests' FROM budgets")]

    assert asyncio.run(work(emptied_database())) == ["1"]


@pytest.mark.rule("store.budget")
def test_without_a_cap_no_statement_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    real = PostgresSession.fetch

    def fetch(session: PostgresSession, query: str, *values: Any) -> Any:
        seen.append(query)
        return real(session, query, *values)

    async def work(url: str) -> list[str]:
        async with process_on(url, tmp_path) as host:
            await host.begin(ROOT)
            await host.begin(CHILD, ROOT)
            monkeypatch.setattr(PostgresSession, "fetch", fetch)
            for run, parent in ((ROOT, None), (CHILD, ROOT)):
                ledger = await host.reopened(run, Budget(), parent)
                assert await spent(ledger, Amount(tokens=100, requests=1)) is None
            assert hasattr(await spawned(host, CHILD, is_counted=False), "grant")
            return list(seen)

    assert asyncio.run(work(emptied_database())) == []


@pytest.mark.rule("store.budget")
def test_accounts_and_holds_are_removed_with_their_runs(tmp_path: Path) -> None:
    async def work(url: str) -> list[int]:
        async with process_on(url, tmp_path) as host:
            root = await open_run(host, ROOT, Budget(requests=10))
            await root.reserve(ONE)
            before = rows(url, "SELECT (SELECT count(*) FROM budgets) + (SELECT count(*) FROM holds)")[0][0]
            await host.journal.finish(host.leases[ROOT], "returned:0", completed(ROOT))
        store = PostgresStore(url, tmp_path)
        assert prune(store, store.now() + 3600)
        return [before, rows(url, "SELECT (SELECT count(*) FROM budgets) + (SELECT count(*) FROM holds)")[0][0]]

    assert asyncio.run(work(emptied_database())) == [2, 0]


@pytest.mark.rule("store.budget")
@pytest.mark.parametrize("is_shared", [False, True])
def test_a_delegation_keeps_the_budget_of_its_tree_on_every_store(is_shared: bool, house: House) -> None:
    house.script(talk(turn("Fine."), times=3))
    tasks = [Task(label=label, prompt=f"work of {label}") for label in ("one", "two", "three", "four", "five")]
    options: dict[str, Any] = {"concurrency": 1, "store": emptied_database() if is_shared else None}
    outcomes = asyncio.run(house.delegate(*tasks, budget=Budget(requests=3, spawns=4), **options))
    assert [outcome.status for outcome in outcomes] == ["completed"] * 3 + ["partial", "rejected"]
    assert [outcome.errors[0].code for outcome in outcomes[3:]] == ["BUDGET_SPENT", "SPAWN_BUDGET"]
