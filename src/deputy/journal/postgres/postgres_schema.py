"""The tables and functions of the schema `deputy`, their version, and the migrations."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from deputy.core.errors import StorageFailed, StorageTooNew, StorageTooOld
from deputy.journal.postgres.store_address import is_away, storage_error

if TYPE_CHECKING:
    from deputy.journal.postgres.store_address import PostgresSession

MIGRATIONS = ("schema_1.sql",)
"""One script per version from the first; a version that was released never changes."""
VERSION = len(MIGRATIONS)
OLDEST = 1
"""The oldest version of Deputy's tables whose programs can still use these."""
_LOCK = 0x44505459
"""The advisory lock of migrations."""
_CHANGE_SECONDS = 24 * 3600.0
"""How long a change of the tables may take: it may rewrite all records."""


class SchemaVersion(NamedTuple):
    """The version of the tables, and the oldest version whose programs may use them."""

    version: int
    oldest: int


def read_version(session: PostgresSession) -> SchemaVersion | None:
    """The version of the tables; None when there are none."""
    if session.fetch("SELECT to_regclass('deputy.schema_version') IS NULL")[0][0]:
        return None
    rows = session.fetch("SELECT version, oldest FROM deputy.schema_version")
    return SchemaVersion(*rows[0]) if rows else None


def check(session: PostgresSession) -> None:
    """Refuse tables that are missing, too old or too new."""
    location, found = session.address.location, read_version(session)
    if found is None:
        raise StorageTooOld(location, "it has no tables of Deputy yet")
    if found.oldest > VERSION:
        raise StorageTooNew(
            location,
            f"its tables have version {found.version}, and this Deputy knows versions up to {VERSION}",
            "Upgrade Deputy on this machine.",
        )
    if found.version < VERSION:
        raise StorageTooOld(location, f"its tables have version {found.version}, and this Deputy needs {VERSION}")
    if _is_restored(session):
        raise StorageTooOld(location, "it was restored from a backup, and its positions must be set anew")


def check_encoding(session: PostgresSession) -> None:
    """Refuse a database that cannot hold every text."""
    encoding: str = session.fetch("SELECT current_setting('server_encoding')")[0][0]
    if encoding != "UTF8":
        raise StorageFailed(
            session.address.location,
            f"the database has the encoding {encoding}, and Deputy needs UTF8",
            "Create it anew: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0; then migrate it.",
        )


def migrate(session: PostgresSession) -> SchemaVersion | None:
    """Bring the tables to the current version, in one transaction; returns the version before."""
    session.run("BEGIN")
    try:
        session.fetch("SELECT pg_advisory_xact_lock($1)", _LOCK)
        before = read_version(session)
        if before is not None and before.version > VERSION:
            check(session)
            session.run("ROLLBACK")
            return before
        if before is None:
            session.run("CREATE SCHEMA IF NOT EXISTS deputy")
        for name in MIGRATIONS[before.version if before is not None else 0 :]:
            session.run(files("deputy.journal.postgres").joinpath(name).read_text(), _CHANGE_SECONDS)
        session.run("DELETE FROM deputy.schema_version")
        session.fetch("INSERT INTO deputy.schema_version VALUES ($1, $2)", VERSION, OLDEST)
        if _is_restored(session):
            # Positions contain transaction ids, which a restored database counts anew.
            session.run(
                "UPDATE deputy.events SET id = 0; UPDATE deputy.progress SET id = 0;"
                " UPDATE deputy.generation SET number = number + 1",
                _CHANGE_SECONDS,
            )
        session.run("COMMIT")
    except BaseException as error:
        if not session.is_closed:
            session.run("ROLLBACK")
        if getattr(error, "sqlstate", None) or is_away(error):
            raise storage_error(session.address, error) from error
        raise
    return before


def _is_restored(session: PostgresSession) -> bool:
    """Whether records have positions that this database has not reached."""
    query = (
        "SELECT coalesce(max(id), 0) >> 20 >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint FROM deputy.events"
    )
    return bool(session.fetch(query)[0][0])
