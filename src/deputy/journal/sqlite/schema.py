"""The tables, their version, and the migrations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.errors import StorageCorrupt, StorageTooNew

if TYPE_CHECKING:
    import sqlite3

APPLICATION = 0x44505459
"""The application id of a journal file."""

FIRST_VERSION = 7
"""The oldest readable version; no release had an earlier one."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # The truth. Appended, never changed; removed only with the whole tree of runs it belongs to.
        """CREATE TABLE events (
            id INTEGER PRIMARY KEY, run TEXT NOT NULL, seq INTEGER NOT NULL, key TEXT NOT NULL, at REAL NOT NULL,
            clock REAL NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL, sum BLOB NOT NULL)""",
        "CREATE UNIQUE INDEX events_by_seq ON events (run, seq)",
        "CREATE UNIQUE INDEX events_by_key ON events (run, key)",
        # Derived: the state of each run as its events leave it, written in the same transaction.
        """CREATE TABLE runs (
            run TEXT PRIMARY KEY, parent TEXT, root TEXT NOT NULL, is_live INTEGER NOT NULL,
            is_settled INTEGER NOT NULL, last_at REAL NOT NULL, state BLOB NOT NULL, sum BLOB NOT NULL)""",
        "CREATE INDEX runs_live ON runs (run) WHERE is_live",
        "CREATE INDEX runs_unsettled ON runs (run) WHERE NOT is_settled",
        "CREATE INDEX runs_by_root ON runs (root, run)",
        "CREATE INDEX runs_by_parent ON runs (parent, run) WHERE parent IS NOT NULL",
        # Only ended runs, so that a turn of a live run does not update this index.
        "CREATE INDEX runs_by_age ON runs (last_at) WHERE NOT is_live",
        # One heartbeat per process, one lease per run.
        "CREATE TABLE owners (owner TEXT PRIMARY KEY, beat REAL NOT NULL)",
        "CREATE TABLE leases (run TEXT PRIMARY KEY, owner TEXT, epoch INTEGER NOT NULL)",
        "CREATE INDEX leases_by_owner ON leases (owner) WHERE owner IS NOT NULL",
        # Messages to runs; each is taken once, in the transaction that makes it an event.
        """CREATE TABLE inbox (
            id INTEGER PRIMARY KEY, run TEXT NOT NULL, topic TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL,
            sum BLOB NOT NULL, is_taken INTEGER NOT NULL DEFAULT 0, UNIQUE (run, key))""",
        "CREATE INDEX inbox_waiting ON inbox (run, topic) WHERE NOT is_taken",
        # Progress for watchers: a ring per run, never folded.
        """CREATE TABLE progress (
            id INTEGER PRIMARY KEY, run TEXT NOT NULL, slot INTEGER NOT NULL, at REAL NOT NULL, body BLOB NOT NULL,
            UNIQUE (run, slot))""",
        # Raised by every removal of records, after which ids are used again. It begins at random: a new journal in
        # the place of another one never continues its cursors.
        "CREATE TABLE generation (number INTEGER NOT NULL)",
        "INSERT INTO generation VALUES (random() & 0x3fffffff)",
        "CREATE TABLE pins (run TEXT PRIMARY KEY)",
        # Rate limits of provider accounts, shared by all processes.
        """CREATE TABLE rate_limits (
            account TEXT PRIMARY KEY, held_until REAL NOT NULL, last_start REAL NOT NULL,
            limited_until REAL NOT NULL DEFAULT 0, shared_limit BLOB NOT NULL DEFAULT '{}')""",
        """CREATE TABLE errors (
            id TEXT PRIMARY KEY, first_at REAL NOT NULL, last_at REAL NOT NULL, count INTEGER NOT NULL,
            body BLOB NOT NULL, sum BLOB NOT NULL)""",
        # What the journal's clock adds to the machine's monotonic clock in one boot.
        "CREATE TABLE clocks (boot TEXT PRIMARY KEY, offset REAL NOT NULL)",
        # Runs in processes that runs have started, and what each has reserved.
        "CREATE TABLE nested (id TEXT PRIMARY KEY, above TEXT NOT NULL, root TEXT NOT NULL, body BLOB NOT NULL)",
        "CREATE INDEX nested_by_root ON nested (root)",
    ),
)
"""One tuple of statements per version from the first; a version that was released never changes."""

VERSION = FIRST_VERSION + len(MIGRATIONS) - 1
PAGE = 4096
_MOVE_AWAY = "Move it away, or name another home; if it was a journal of this version, run `deputy doctor --repair`."
LOGGED = slice(18, 20)
"""The header bytes that say that a file uses a write-ahead log; a database in memory has none."""


def check(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the file has the current version; a newer or foreign file is refused. Changes nothing."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    if version > VERSION:
        raise StorageTooNew(path, f"it has version {version}, and this Deputy knows versions up to {VERSION}")
    if application != APPLICATION and (version or connection.execute("SELECT 1 FROM sqlite_master").fetchone()):
        raise StorageCorrupt(path, "it is not a journal of Deputy", _MOVE_AWAY)
    if 0 < version < FIRST_VERSION:
        raise StorageCorrupt(path, f"it has the old version {version}", _MOVE_AWAY)
    return version == VERSION


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Migrate the tables to the current version, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have migrated while this one waited.
        if not check(connection, path):
            version: int = connection.execute("PRAGMA user_version").fetchone()[0]
            for statements in MIGRATIONS[max(0, version - FIRST_VERSION + 1) :]:
                for statement in statements:
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def fresh() -> bytes:
    """The bytes of an empty journal."""
    import sqlite3

    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.execute(f"PRAGMA page_size = {PAGE}")
        # Takes effect only before the first table: free pages can be returned to the system.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        migrate(connection, ":memory:")
        made = bytearray(connection.serialize())
    finally:
        connection.close()
    made[LOGGED] = b"\2\2"
    return bytes(made)
