"""The roles that `deputy store roles` makes: what each must do works, and what it must not do is refused."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.journal.postgres.test_postgres_writer import journal_on
from tests.support.postgres import administer, fresh_database

from deputy.core.errors import StorageDenied
from deputy.core.events import ANSWER, APPROVAL, CANCEL
from deputy.core.limits import Budget
from deputy.engine.ports.budgets import BudgetOpening, Hold
from deputy.journal.postgres.postgres_budgets import PostgresBudgets
from deputy.journal.postgres.postgres_queries import PostgresQueries
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress, driver
from deputy.stores import store_roles
from deputy.testing.budgets_suite import ONE
from deputy.testing.queries_suite import completed, opened

if TYPE_CHECKING:
    from pathlib import Path

RUN, OWN = "sess_1_root00", "sess_2_own000"


def with_roles() -> tuple[str, dict[str, str]]:
    """A new database and its address for each role."""
    url = fresh_database()
    with closing(PostgresSession(StoreAddress(url))) as session:
        # Twice: after an upgrade they are run again.
        session.run(store_roles())
        session.run(store_roles())
        session.run("CREATE SCHEMA private; CREATE TABLE private.plans (text text)")
    users: dict[str, str] = {}
    for role in ("reader", "answerer", "worker"):
        name = f"{role}_{StoreAddress(url).database}"
        administer(f"CREATE ROLE {name} LOGIN IN ROLE deputy_{role}")
        users[role] = url.replace("postgres@", f"{name}@")
    return url, users


@pytest.mark.rule("store.roles")
def test_a_worker_carries_out_runs_and_cannot_approve(tmp_path: Path) -> None:
    _, users = with_roles()

    async def work() -> None:
        async with journal_on(users["worker"], tmp_path) as journal:
            lease = await journal.begin(RUN, opened(RUN))
            assert lease is not None
            ledger = await PostgresBudgets(journal).open(
                BudgetOpening(run=RUN, root=RUN, parent=None, budget=Budget(requests=1))
            )
            hold = await ledger.reserve(ONE)
            assert isinstance(hold, Hold)
            await ledger.commit(hold, ONE)
            assert await journal.send(RUN, CANCEL, "cancel:1", b'"stop"')
            assert await journal.receive_message(lease, "cancel", CANCEL) is not None
            for topic in (APPROVAL, ANSWER):
                with pytest.raises(StorageDenied) as refused:
                    await journal.send(RUN, topic, f"{topic}:1", b'"yes"')
                assert "lacks a right" in str(refused.value)
                assert "`deputy store roles`" in refused.value.remedy
            await journal.finish(lease, "returned:0", completed(RUN))
            await journal.purge(RUN)
            assert await journal.state(RUN) is None

    asyncio.run(work())
    with closing(PostgresSession(StoreAddress(users["worker"]))) as session:
        for statement in (
            "SELECT * FROM private.plans",
            "UPDATE inbox SET topic = 'approval'",
            "UPDATE schema_version SET version = 9",
            "CREATE TABLE deputy.more (id integer)",
            "SELECT may_answer()",
        ):
            with pytest.raises(driver().InsufficientPrivilegeError):
                session.run(statement)


@pytest.mark.rule("store.roles")
def test_an_answerer_approves_and_takes_no_run(tmp_path: Path) -> None:
    url, users = with_roles()

    async def work() -> None:
        async with journal_on(url, tmp_path) as owner, journal_on(users["answerer"], tmp_path) as answerer:
            lease = await owner.begin(RUN, opened(RUN))
            assert lease is not None
            assert await answerer.send(RUN, APPROVAL, "approval:1", b'"yes"')
            assert await answerer.send(RUN, CANCEL, "cancel:1", b'"stop"')
            assert await owner.receive_message(lease, "cancel", CANCEL) is not None
            await owner.finish(lease, "returned:0", completed(RUN))
            with pytest.raises(StorageDenied):
                await answerer.acquire(RUN)
            with pytest.raises(StorageDenied):
                await answerer.begin(OWN, opened(OWN))
            with pytest.raises(StorageDenied):
                await answerer.purge(RUN)

    asyncio.run(work())


@pytest.mark.rule("store.roles")
def test_a_reader_reads_and_writes_nothing(tmp_path: Path) -> None:
    url, users = with_roles()

    async def work() -> None:
        async with journal_on(url, tmp_path) as owner, journal_on(users["reader"], tmp_path) as reader:
            await owner.begin(RUN, opened(RUN))
            assert await reader.state(RUN) is not None
            for topic in (CANCEL, APPROVAL):
                with pytest.raises(StorageDenied):
                    await reader.send(RUN, topic, f"{topic}:1", b'"stop"')
            with pytest.raises(StorageDenied):
                await reader.begin(OWN, opened(OWN))

    asyncio.run(work())
    with PostgresQueries.open(StoreAddress(users["reader"])) as queries:
        assert queries.follow(queries.cursor()).is_empty
        assert queries.ids() == [RUN]
