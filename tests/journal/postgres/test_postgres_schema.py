"""Migrations of the Postgres store: one at a time, repeatable, and after a restore."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from ssl import SSLCertVerificationError, SSLEOFError

import pytest
from tests.support.postgres import empty_database, fresh_database

from deputy.core.errors import StorageBusy, StorageDenied, StorageFull, StorageTooNew, StorageTooOld, UsageError
from deputy.journal.postgres import postgres_schema
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress, driver, storage_error


@pytest.mark.rule("store.schema")
def test_two_machines_that_migrate_at_once_make_the_tables_once() -> None:
    address = StoreAddress(empty_database())

    def migrate() -> object:
        with closing(PostgresSession(address)) as session:
            return postgres_schema.migrate(session)

    with ThreadPoolExecutor(2) as pool:
        before = [one.result() for one in [pool.submit(migrate), pool.submit(migrate)]]
    assert sorted(before, key=str) == [None, (1, 1)] or sorted(before, key=str) == [(1, 1), None]


@pytest.mark.rule("store.schema")
def test_tables_of_another_version_are_refused() -> None:
    with closing(PostgresSession(StoreAddress(fresh_database()))) as session:
        postgres_schema.check(session)
        session.run("UPDATE schema_version SET version = 9, oldest = 1")
        # A newer version that older programs can still use.
        postgres_schema.check(session)
        session.run("UPDATE schema_version SET oldest = 9")
        with pytest.raises(StorageTooNew, match="version 9"):
            postgres_schema.check(session)
        session.run("UPDATE schema_version SET version = 0, oldest = 0")
        with pytest.raises(StorageTooOld, match="Run `deputy store migrate`"):
            postgres_schema.check(session)


def test_a_restored_database_is_used_only_after_its_positions_were_set_anew() -> None:
    with closing(PostgresSession(StoreAddress(fresh_database()))) as session:
        # Transaction ids of the database that was backed up, which this one has not reached.
        session.run("INSERT INTO events VALUES ((1::bigint << 42), 'r', 1, 'k', 0, 0, 'noted', '', '')")
        (number,) = session.fetch("SELECT number FROM generation")[0]
        with pytest.raises(StorageTooOld, match="restored from a backup"):
            postgres_schema.check(session)
        postgres_schema.migrate(session)
        postgres_schema.check(session)
        assert session.fetch("SELECT number FROM generation") == [(number + 1,)]


def test_a_migration_may_take_longer_than_an_answer() -> None:
    waits: list[float | None] = []

    class WatchedSession(PostgresSession):
        def run(self, script: str, seconds: float | None = None) -> None:
            if "UPDATE deputy.events" in script:
                waits.append(seconds)
            super().run(script, seconds)

    with closing(WatchedSession(StoreAddress(fresh_database()))) as session:
        session.run("INSERT INTO events VALUES ((1::bigint << 42), 'r', 1, 'k', 0, 0, 'noted', '', '')")
        postgres_schema.migrate(session)
        postgres_schema.check(session)
    assert waits == [postgres_schema._CHANGE_SECONDS]


@pytest.mark.rule("store.schema")
def test_a_wrong_password_is_an_error_that_names_it() -> None:
    refused = driver().InvalidPasswordError('password authentication failed for user "me"')
    error = storage_error(StoreAddress("postgres://me:wrong-horse@db/x"), refused)
    assert isinstance(error, StorageDenied)
    assert "the server refused the user or the password" in str(error)
    assert "wrong-horse" not in str(error)


@pytest.mark.rule("store.schema")
def test_a_connection_that_is_not_secure_says_so() -> None:
    address = StoreAddress("postgres://me@db/x?sslmode=verify-full")
    for refused in (
        ConnectionError('PostgreSQL server at "db:5432" rejected SSL upgrade'),
        SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed"),
    ):
        error = storage_error(address, refused)
        assert isinstance(error, StorageDenied)
        assert "Let the server offer TLS with a certificate that this machine knows" in str(error)
    # A server that goes away while a connection begins is away: its clients try again.
    assert isinstance(storage_error(address, SSLEOFError(8, "EOF occurred in violation of protocol")), StorageBusy)
    wrong = driver().exceptions.ClientConfigurationError("`sslmode` parameter must be one of: disable, require")
    assert "Correct the store's address" in str(storage_error(address, wrong))


@pytest.mark.rule("store.schema")
def test_a_full_disk_of_the_database_is_an_error_that_says_what_to_do() -> None:
    error = storage_error(StoreAddress("postgres://me@db/x"), driver().DiskFullError("could not extend file"))
    assert isinstance(error, StorageFull)
    assert "Free some space on the disk of the database" in str(error)


@pytest.mark.rule("store.secret")
@pytest.mark.parametrize(
    "url",
    [
        "postgres://me:12/wrong-horse@db/x",
        "postgres://me:12#wrong-horse@db/x",
        "postgres://me:12?wrong-horse@db/x",
        "postgres://me:wrong-horse@[::1/x",
        "postgres://me:wrong-horse\u2100@db/x",
        "postgres://me:wrong-horse:x@db:wrong-horse/x",
    ],
)
def test_an_address_whose_password_is_not_encoded_is_refused_without_a_part_of_it(url: str) -> None:
    with pytest.raises(UsageError, match="%2F") as refused:
        StoreAddress(url)
    assert "horse" not in str(refused.value)
    assert refused.value.__cause__ is None
