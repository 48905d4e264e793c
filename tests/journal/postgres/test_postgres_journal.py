"""The Postgres journal does what every journal must: the same suites as SQLite's."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.postgres import emptied_database

from deputy.core.errors import StorageBusy
from deputy.journal.postgres import postgres_journal
from deputy.journal.postgres.postgres_journal import PostgresJournal
from deputy.journal.postgres.postgres_queries import PostgresQueries
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress, connect
from deputy.runtime.engine import LocalEngine, SystemWorld
from deputy.testing import queries_suite, runtime_suite

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from deputy.engine.ports import Workflow
    from deputy.testing.runtime_suite import Host

QUICK = {"synchronous_commit": "off"}
IS_WHOLE = os.environ.get("DEPUTY_SUITE") == "all"
"""`make test-store` runs every case, and the others a sample."""
SAMPLED = [case for case in runtime_suite.CASES if IS_WHOLE or random.Random(case.__name__).random() < 0.3]
MODES = [0.0, 5.0] if IS_WHOLE else [0.0]


class PostgresHost:
    """Processes one after another on one database; a dead one has no heartbeat, as some seconds later."""

    def __init__(self, url: str, folder: Path, suspend_seconds: float = 0.0) -> None:
        self.address = StoreAddress(url)
        self._folder = folder
        self._suspend_seconds = suspend_seconds
        self._journals: dict[int, PostgresJournal] = {}

    @asynccontextmanager
    async def start(self, workflow: Workflow) -> AsyncGenerator[LocalEngine[Any]]:
        async with self.write() as journal:
            world = SystemWorld(journal.clock.now)
            async with LocalEngine(journal, workflow, world, suspend_seconds=self._suspend_seconds) as engine:
                self._journals[id(engine)] = journal
                yield engine

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[PostgresJournal]:
        journal = await asyncio.to_thread(PostgresJournal, self.address, self._folder, settings=QUICK)
        async with journal:
            yield journal

    async def crash(self, dying: Any) -> None:
        journal = dying if isinstance(dying, PostgresJournal) else self._journals[id(dying)]
        await journal.abandon()
        await asyncio.to_thread(forget_owner, self.address, journal.owner)

    def read(self) -> PostgresQueries:
        return PostgresQueries.open(self.address)


def forget_owner(address: StoreAddress, owner: str) -> None:
    session = PostgresSession(address)
    session.fetch("DELETE FROM owners WHERE owner = $1", owner)
    session.close()


@pytest.mark.rule("store.any")
@pytest.mark.parametrize("suspend_seconds", MODES)
@pytest.mark.parametrize("case", SAMPLED, ids=lambda case: case.__name__)
def test_an_engine_on_postgres_is_durable(
    case: Callable[[Host], Awaitable[None]], suspend_seconds: float, tmp_path: Path
) -> None:
    asyncio.run(case(PostgresHost(emptied_database(), tmp_path, suspend_seconds)))


@pytest.mark.rule("store.any")
@pytest.mark.parametrize("case", queries_suite.CASES, ids=lambda case: case.__name__)
def test_queries_of_postgres_pass_the_suite(case: Callable[..., Any], tmp_path: Path) -> None:
    asyncio.run(case(PostgresHost(emptied_database(), tmp_path)))


@pytest.mark.rule("store.away")
def test_a_journal_that_closes_waits_no_longer_for_a_database_that_is_away() -> None:
    session = PostgresSession(StoreAddress(emptied_database()))
    session.drop()
    # Nothing listens on port 9.
    session.address = StoreAddress("postgres://me@127.0.0.1:9/x")
    asked = iter([False, False, True])
    queries = PostgresQueries(session, max_wait_seconds=3600.0, is_closing=lambda: next(asked))
    with pytest.raises(StorageBusy) as raised:
        queries.ids()
    assert str(raised.value).count("cannot reach it") == 1
    assert list(asked) == []


@pytest.mark.rule("store.away")
def test_a_connection_that_is_lost_before_it_listens_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(address: StoreAddress) -> Any:
        connection = await connect(address)
        connection.terminate()
        return connection

    async def work() -> None:
        async with PostgresHost(emptied_database(), tmp_path).write() as journal:
            with monkeypatch.context() as patched:
                patched.setattr(postgres_journal, "connect", lost)
                patched.setattr(postgres_journal, "_RECONNECT_SECONDS", 0.0)
                first = await journal.changes()
            second = await journal.changes()
            assert second > first
            # It listens now, so nothing is missed between two looks.
            assert await journal.changes() == second

    asyncio.run(work())
