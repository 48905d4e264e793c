"""A Postgres database as a store: how commands without an engine reach it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from deputy.core.errors import DeputyError, StorageCorrupt
from deputy.journal.postgres import postgres_schema
from deputy.journal.postgres.postgres_bundles import PostgresBundles
from deputy.journal.postgres.postgres_queries import PostgresQueries
from deputy.journal.postgres.postgres_tables import PostgresTables
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress, driver, storage_error
from deputy.journal.sql.sql_queries import STALE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from deputy.journal.postgres.postgres_budgets import PostgresBudgets
    from deputy.journal.sql.sql_journal import SqlJournal
    from deputy.journal.sql.sql_store import SqlTables
    from deputy.journal.sqlite.connection import Fsync

    T = TypeVar("T")


_PRUNE_LOCK = 0x4450545A
"""The advisory lock of the process that removes old runs."""


class PostgresStore:
    """The schema `deputy` of a database."""

    is_local = False

    def __init__(self, url: str, folder: Path) -> None:
        self.address = StoreAddress(url)
        self.folder = folder
        self.location = self.name = self.address.location
        self.passwords = self.address.passwords

    def queries(self) -> PostgresQueries:
        """Open it for reading."""
        return PostgresQueries.open(self.address)

    checked_queries = queries

    def journal(self, *, fsync: Fsync, mask: Callable[[bytes], bytes]) -> SqlJournal:
        """Open the journal of this process for writing; without `fsync` a commit does not wait for the disk."""
        from deputy.journal.postgres.postgres_journal import PostgresJournal

        settings = {"synchronous_commit": "off"} if fsync == "off" else None
        return PostgresJournal(self.address, self.folder, mask=mask, settings=settings)

    def budgets(self, journal: SqlJournal) -> PostgresBudgets:
        """The budgets of all workers."""
        from deputy.journal.postgres.postgres_budgets import PostgresBudgets

        return PostgresBudgets(journal)

    def now(self) -> float:
        """The time by the clock of the database."""
        with self.queries() as queries:
            return queries.now()

    @contextmanager
    def writing(self) -> Generator[PostgresStoreWriter]:
        """Open it for writing."""
        session = self.session()
        try:
            postgres_schema.check(session)
            yield PostgresStoreWriter(session)
        finally:
            session.close()

    @contextmanager
    def bundles(self) -> Generator[PostgresBundles]:
        """Open the git bundles in it."""
        session = self.session()
        try:
            postgres_schema.check(session)
            yield PostgresBundles(session)
        finally:
            session.close()

    @contextmanager
    def pruning(self) -> Generator[bool]:
        """Whether no other process removes old runs now; none begins to before this one has ended."""
        session = self.session()
        try:
            # The lock ends with the connection.
            yield session.fetch("SELECT pg_try_advisory_lock($1)", _PRUNE_LOCK)[0][0]
        finally:
            session.close()

    def may_use_queues(self) -> bool:
        """Whether this role may use the queues of workers that are in the database."""
        session = self.session()
        try:
            query = "SELECT has_schema_privilege(oid, 'usage') FROM pg_namespace WHERE nspname = 'dbos'"
            return (False,) not in session.fetch(query)
        finally:
            session.close()

    def make_room(self, do: Callable[[SqlTables | None], None]) -> None:
        """Nothing: files of this machine make no room in the database."""

    def session(self) -> PostgresSession:
        """A connection, whatever tables there are."""
        return PostgresSession(self.address)


class PostgresStoreWriter:
    """Transactions on one connection."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session

    def transact(self, do: Callable[[SqlTables], T], *, removes: bool = False) -> T:
        """Run a function in one transaction; removals happen one after another."""
        session, address = self._session, self._session.address
        try:
            session.run("BEGIN")
            # Before the transaction has an id: see `horizon`.
            session.run("LOCK TABLE events IN ROW EXCLUSIVE MODE")
            tables = PostgresTables(session, STALE_SECONDS)
            if removes:
                tables.serialize("removals")
            result = do(tables)
            session.run("COMMIT")
        except BaseException as error:
            if not session.is_closed:
                session.run("ROLLBACK")
            if isinstance(error, DeputyError):
                raise
            if isinstance(error, driver().UniqueViolationError):
                raise StorageCorrupt(address.location, str(error)) from error
            if isinstance(error, OSError | driver().PostgresError | driver().InterfaceError):
                raise storage_error(address, error) from error
            raise
        return result
