"""The queues of DBOS say why a worker cannot use them."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.postgres import administer, fresh_database, queue_database

from deputy.core.errors import LeaseLost, StorageBusy, StorageDenied, StorageError, StorageFailed, StorageTooOld
from deputy.journal.postgres.postgres_store import PostgresStore
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress
from deputy.placement.dbos_dispatch import DbosDispatch, launch_error, migrate


def failure(url: str) -> StorageError:
    """The error of a worker that begins to work on a store."""

    async def carry_out(run: str, number: int) -> None:
        raise AssertionError("it claimed a run")

    async def work() -> None:
        store = PostgresStore(url, Path("unused"))
        dispatch = DbosDispatch(url, store.location, "me", may_use=store.may_use_queues)
        await dispatch.work(carry_out, queues=["deputy"], slots=1, stop=asyncio.Event(), is_ready=lambda: None)

    with pytest.raises(StorageError) as raised:
        asyncio.run(work())
    return raised.value


@pytest.mark.rule("cluster.place")
def test_a_placement_is_carried_out_and_its_row_is_deleted_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    url = queue_database()
    carried: list[tuple[str, int]] = []

    async def carry_out(run: str, number: int) -> None:
        carried.append((run, number))
        if run == "two":
            raise LeaseLost(run, 1)

    def execute(query: str) -> list[tuple[Any, ...]]:
        with closing(PostgresSession(StoreAddress(url))) as session:
            return session.fetch(query)

    async def work() -> None:
        dispatch = DbosDispatch(url, "db/deputy", "me")
        stop, ready = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(dispatch.work(carry_out, queues=["deputy"], slots=2, stop=stop, is_ready=ready.set))
            await ready.wait()
            for run in ("one", "two", "three"):
                await asyncio.to_thread(execute, f"SELECT enqueue('{run}', 7, 'deputy')")
            forgotten = 0
            while forgotten < 3:
                forgotten += await dispatch.forget()
            stop.set()

    asyncio.run(work())
    assert sorted(carried) == [("one", 7), ("three", 7), ("two", 7)]
    assert execute("SELECT count(*) FROM dbos.workflow_status") == [(0,)]
    # Another worker has that run: nothing is wrong, and nothing is placed again.
    assert [one for one in caplog.records if one.name == "deputy.worker"] == []


@pytest.mark.rule("cluster.launch")
def test_tables_that_are_missing_are_named_with_the_command_that_makes_them() -> None:
    error = failure(fresh_database())
    assert isinstance(error, StorageTooOld)
    assert "missing or old" in error.what
    assert "store migrate" in error.remedy


@pytest.mark.rule("cluster.launch")
def test_a_role_without_a_right_on_the_queues_is_told_so() -> None:
    url = queue_database()
    name = f"stranger_{StoreAddress(url).database}"
    administer(f"CREATE ROLE {name} LOGIN")
    error = failure(url.replace("postgres@", f"{name}@"))
    assert isinstance(error, StorageDenied)
    assert "lacks a right on the queues" in error.what
    assert "deputy store roles" in error.remedy


@pytest.mark.rule("cluster.launch")
def test_a_server_that_cannot_be_reached_is_not_taken_for_missing_tables(tmp_path: Path) -> None:
    error = failure(f"postgres://postgres@/postgres?host={tmp_path}")
    assert isinstance(error, StorageBusy)
    assert "cannot reach it" in error.what
    # The text of the driver quotes the address.
    assert str(tmp_path) not in error.what


@pytest.mark.rule("cluster.launch")
def test_an_unknown_error_is_named_by_its_type_and_its_text_is_not_shown() -> None:
    for unknown in (ValueError("postgres://me:secret@db"), psycopg.InterfaceError("postgres://me:secret@db")):
        error = launch_error("db/deputy", unknown)
        assert isinstance(error, StorageFailed)
        assert error.what == f"its queues cannot be used ({type(unknown).__name__})"
    denied = RuntimeError("postgres://me:secret@db")
    denied.__cause__ = psycopg.errors.InsufficientPrivilege("permission denied for schema dbos")
    assert "(permission denied for schema dbos)" in launch_error("db/deputy", denied).what


@pytest.mark.rule("store.secret")
def test_no_error_of_a_migration_contains_a_part_of_the_password() -> None:
    url = fresh_database()
    name = f"stranger_{StoreAddress(url).database}"
    administer(f"CREATE ROLE {name} LOGIN PASSWORD 'canary7canary7'")
    stranger = url.replace("postgres@", f"{name}:canary7canary7@")
    for address, kind in (
        (stranger, StorageFailed),
        (stranger.replace(name, f"{name}_unknown"), StorageBusy),
        ("postgres://me:canary7canary7@127.0.0.1:9/x", StorageBusy),
        # Texts that the drivers quote as they are.
        ("postgres://me:canary7canary7@127.0.0.1:canary7/x", StorageFailed),
        ("postgres://me@127.0.0.1:9/x?password=canary7&canary7=1", StorageBusy),
    ):
        with pytest.raises(StorageError) as raised:
            migrate(address, "db/deputy")
        assert type(raised.value) is kind, (address, raised.value)
        assert "canary7" not in f"{raised.value} {raised.value.what} {raised.value.remedy}"
