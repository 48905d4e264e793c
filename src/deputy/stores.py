"""Finds and opens the journal's store: beside `wiring.py` the only module that names an adapter."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from deputy.engine.ports import Journal
    from deputy.engine.ports.queries import Queries, RepairedJournal
    from deputy.engine.ports.workspaces import BundleStore
    from deputy.journal.postgres.postgres_store import PostgresStore
    from deputy.journal.sql.sql_journal import SqlJournal
    from deputy.journal.sql.sql_store import SqlStore
    from deputy.journal.sqlite.connection import Fsync

STORE_VARIABLE = "DEPUTY_STORE"
DISPATCH_VARIABLE = "DEPUTY_DISPATCH"


def store_url(given: str | None = None) -> str:
    """The address of the store: as given, of the environment, or of the user's config; empty for the file of the home.

    A project's file cannot name one.
    """
    return given or os.environ.get(STORE_VARIABLE, "").strip() or _configured_url()


def _configured_url() -> str:
    """The address in the user's config, which most users do not have: it is only parsed when it may be there."""
    path = f"{os.environ.get('HOME', '')}/.config/deputy/config.toml"
    try:
        with open(path, "rb") as file:  # noqa: PTH123  pathlib takes longer than the read
            if b"store" not in file.read():
                return ""
    except (OSError, ValueError):
        return ""
    from deputy.config import load_user

    return load_user().store.url


def dispatch_name() -> str:
    """The engine that hands runs to workers, by the environment or the user's config; empty without one."""
    from deputy.config import load_user
    from deputy.core.errors import UsageError

    given = os.environ.get(DISPATCH_VARIABLE, "").strip()
    if given not in ("", "dbos"):
        raise UsageError(DISPATCH_VARIABLE, given, "set it to dbos, or remove it")
    return given or load_user().store.dispatch


def find_store(folder: Path, given: str | None = None) -> SqlStore:
    """The store of the journal; nothing is opened."""
    url = store_url(given)
    if url:
        return _postgres(url, folder)
    from deputy.journal.sqlite.sqlite_store import SqliteStore

    return SqliteStore(folder)


def find_bundles(folder: Path) -> BundleStore:
    """The git bundles of the store that the environment or the config names."""
    return _postgres(store_url(), folder)


def _postgres(url: str, folder: Path) -> PostgresStore:
    from deputy.journal.postgres.postgres_store import PostgresStore

    return PostgresStore(url, folder)


@asynccontextmanager
async def open_store(
    store: SqlStore, *, fsync: Fsync = "group", mask: Callable[[bytes], bytes] = bytes
) -> AsyncGenerator[SqlJournal]:
    """Open the journal of this process for writing."""
    if store.is_local:
        journal = store.journal(fsync=fsync, mask=mask)
    else:
        import asyncio

        journal = await asyncio.to_thread(store.journal, fsync=fsync, mask=mask)
    async with journal:
        yield journal


def open_queries(folder: Path, *, is_checked: bool = True) -> Queries | None:
    """Open the journal for reading; None when there is none. `is_checked`: refuse damaged tables of runs."""
    store = find_store(folder)
    return store.checked_queries() if is_checked else store.queries()


@asynccontextmanager
async def open_journal(folder: Path) -> AsyncGenerator[Journal[Any]]:
    """Open the journal for writing, without an engine."""
    async with open_store(find_store(folder)) as journal:
        yield journal


def repair_journal(folder: Path) -> RepairedJournal:
    """Replace a damaged journal by one of its readable rows."""
    from deputy.core.errors import Unquoted, UsageError

    if store_url():
        raise UsageError("--repair", Unquoted("a Postgres store"), "restore the database from a backup")
    from deputy.journal.sqlite.file_repair import repair

    return repair(folder)


class StoreProcess(Struct, frozen=True):
    """A process with a heartbeat in the store."""

    host: str
    pid: str
    version: str
    held: int
    """How many runs it holds."""
    silent_seconds: float


class StoreWorker(Struct, frozen=True):
    """A worker of the store."""

    host: str
    pid: str
    version: str
    labels: tuple[str, ...]
    slots: int
    is_draining: bool
    silent_seconds: float
    held: int
    """How many runs it holds."""
    clock_offset_seconds: float
    """How far the clock of its machine is ahead of the database's."""
    keys: tuple[str, ...]
    """The names of its provider keys; their values are in no store."""


class StoreReport(Struct, frozen=True):
    """The condition of a Postgres store."""

    location: str
    version: int
    known_version: int
    runs: int
    live: int
    size: int
    processes: tuple[StoreProcess, ...]


def migrate_store(folder: Path) -> tuple[str, int, int]:
    """Bring the tables of the Postgres store to this version; its address, and the versions before and after."""
    from deputy.journal.postgres.postgres_schema import VERSION, check_encoding, migrate

    store = _postgres(store_url(), folder)
    # The first connection, whose errors name what the server said.
    session = store.session()
    try:
        check_encoding(session)
        before = migrate(session)
    finally:
        session.close()
    if dispatch_name():
        from deputy.placement.dbos_dispatch import migrate as migrate_queues

        migrate_queues(store.address.url, store.location)
    return (
        store.location,
        0 if before is None else before.version,
        VERSION if before is None else max(VERSION, before[0]),
    )


def store_roles() -> str:
    """The statements that make the roles of a store."""
    from importlib.resources import files

    return files("deputy.journal.postgres").joinpath("roles.sql").read_text()


def read_store(folder: Path) -> StoreReport:
    """The condition of the Postgres store."""
    from deputy.journal.postgres import postgres_schema

    store = _postgres(store_url(), folder)
    with store.queries() as queries:
        version = queries.version()
        runs, live, size = queries.totals()
        found = tuple(StoreProcess(*row) for row in queries.processes())
    return StoreReport(store.location, version, postgres_schema.VERSION, runs, live, size, found)


def read_workers(folder: Path) -> tuple[StoreWorker, ...]:
    """The workers of the Postgres store that have sent a heartbeat lately."""
    from deputy.journal.process_identity import pid_in

    with _postgres(store_url(), folder).queries() as queries:
        return tuple(
            StoreWorker(
                one.host,
                pid_in(one.owner),
                one.version,
                tuple(one.labels),
                one.slots,
                one.is_draining,
                one.silent_seconds,
                one.held,
                one.clock_offset_seconds,
                tuple(one.keys),
            )
            for one in queries.workers()
        )
