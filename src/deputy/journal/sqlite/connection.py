"""Connections to the journal's file: setup, waiting for locks, and error translation."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from deputy.core.errors import StorageBusy, StorageCorrupt, StorageDenied, StorageError, StorageFailed, StorageFull
from deputy.journal import home
from deputy.journal.sqlite import commit_marker, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    T = TypeVar("T")

Fsync: TypeAlias = Literal["group", "each", "off"]
"""When to sync: once per group of records, per record, or never."""

MAX_WAIT_SECONDS = 30.0
_PAUSE_SECONDS = 0.02
BROKEN = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Exceptions of reading a damaged file; its text may be invalid UTF-8."""
_CLOSED = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR})
_NO_TEXT = "Could not decode"
"""The start of sqlite3's message about invalid text; that error has no code."""
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})


def open_writer(folder: Path, fsync: Fsync, wait_seconds: float = MAX_WAIT_SECONDS) -> sqlite3.Connection:
    """Open a writing connection; home, file and tables are created if they are missing."""
    path = home.make_home(folder) / home.JOURNAL
    promise = _refuse_lost(folder, path)
    if home.make_file(path, schema.fresh):
        # The marker of an earlier journal is not valid for this one.
        commit_marker.clear(folder)
    with typed(path):
        connection = retry_while_busy(lambda: connect(path, "rw"), path, wait_seconds)
        try:
            retry_while_busy(lambda: _prepare(connection, path, fsync), path, wait_seconds)
            retry_while_busy(lambda: _refuse_lost_end(connection, path, promise), path, wait_seconds)
        except BaseException:
            _close_unchanged(connection, path)
            raise
    return connection


def open_reader(
    folder: Path, wait_seconds: float = MAX_WAIT_SECONDS, *, is_written: bool = False
) -> sqlite3.Connection | None:
    """Open a read-only connection; None when there is no journal. Creates and changes nothing.

    A journal that this process writes is never opened as immutable: later writes would not be seen.
    """
    path = folder / home.JOURNAL
    if not home.check_home(folder):
        return None
    if not home.has_file(path):
        if not is_written:
            _refuse_lost(folder, path)
        return None
    promise = commit_marker.read_marker(folder)
    with typed(path):
        connection = retry_while_busy(lambda: connect(path, "ro"), path, wait_seconds)
        try:
            if retry_while_busy(lambda: _is_readable(connection, path), path, wait_seconds):
                retry_while_busy(lambda: _refuse_lost_end(connection, path, promise), path, wait_seconds)
                return connection
        except sqlite3.OperationalError as error:
            connection.close()
            if is_written or _code(error) not in _CLOSED or not _is_at_rest(path):
                raise
            return _open_at_rest(path, promise)
        except BaseException:
            connection.close()
            raise
    connection.close()
    # An older or unfinished file is migrated once, by a writer.
    open_writer(folder, "group", wait_seconds).close()
    return open_reader(folder, wait_seconds, is_written=is_written)


def _refuse_lost(folder: Path, path: Path) -> commit_marker.CommittedPosition | None:
    """Refuse to create a journal where the marker or the log shows that one existed; returns the marked record."""
    # Both are created after the file itself, so they are read before it.
    promise, log = commit_marker.read_marker(folder), _size(path.with_name(f"{path.name}-wal"))
    size = _size(path)
    if size or not (promise or log):
        return promise
    known = "its log still exists" if promise is None else f"record {promise.seq} of {promise.run!r} was in it"
    raise StorageCorrupt(
        str(path),
        f"it is {'missing' if size is None else 'empty'}, though {known}",
        "Restore it from a backup, or run `deputy doctor --repair` to start a new journal.",
    )


def _refuse_lost_end(
    connection: sqlite3.Connection, path: Path, position: commit_marker.CommittedPosition | None
) -> None:
    """Refuse a journal that lacks the marked record."""
    if position is None:
        return
    found = connection.execute("SELECT 1 FROM events WHERE run = ? AND seq = ?", position).fetchone()
    # If the marker has changed since, the record may have been removed with its run.
    if found is None and commit_marker.read_marker(path.parent) == position:
        raise StorageCorrupt(str(path), f"its end is missing, with record {position.seq} of {position.run!r}")


def _close_unchanged(connection: sqlite3.Connection, path: Path) -> None:
    """Close a writing connection without a checkpoint."""
    # SQLite checkpoints when the last connection closes, unless that one is read-only.
    with suppress(sqlite3.Error), closing(connect(path, "ro")) as last:
        last.execute("PRAGMA user_version").fetchone()
        connection.close()
    connection.close()


def _size(path: Path) -> int | None:
    """The size of a file; None when it does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def retry_while_busy(do: Callable[[], T], path: Path, wait_seconds: float = MAX_WAIT_SECONDS) -> T:
    """Retry while another process holds the lock; after `wait_seconds` raise StorageBusy."""
    until = time.monotonic() + wait_seconds
    while True:
        try:
            return do()
        except sqlite3.OperationalError as error:
            if _code(error) not in _BUSY:
                raise
            if time.monotonic() >= until:
                raise StorageBusy(str(path), f"it was locked for {wait_seconds:g} s") from error
        time.sleep(_PAUSE_SECONDS)


@contextmanager
def typed(path: Path) -> Generator[None]:
    """Translate SQLite's errors into StorageErrors."""
    try:
        yield
    except sqlite3.Error as error:
        raise storage_error(path, error) from error
    except UnicodeDecodeError as error:
        raise StorageCorrupt(str(path), f"it holds damaged text: {error.reason}") from error
    except OSError as error:
        home.explain(path, error)


def storage_error(path: Path, error: sqlite3.Error) -> StorageError:
    """The StorageError for an error of SQLite."""
    return meaning(str(path), error, home.disk_of(path))


def meaning(name: str, error: sqlite3.Error, disk: home.Disk) -> StorageError:
    """The StorageError for an error of SQLite on a disk in this condition."""
    what, code = str(error), _code(error)
    match code:
        case _ if disk.is_read_only and code in _CLOSED:
            return home.read_only(name)
        case sqlite3.SQLITE_FULL:
            return StorageFull(name, what)
        case sqlite3.SQLITE_IOERR if disk.is_full:
            return StorageFull(name, "no space is left on its disk")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_ERROR:
            # Our statements fit our tables, so SQLITE_ERROR means that the tables are not ours.
            return StorageCorrupt(name, what)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return StorageDenied(name, what)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return StorageBusy(name, what)
        case _ if what.startswith(_NO_TEXT):
            return StorageCorrupt(name, what)
        case _:
            return StorageFailed(name, what)


def is_storage(error: sqlite3.Error) -> bool:
    """Whether the file failed, not the statement."""
    return not isinstance(error, sqlite3.IntegrityError | sqlite3.DataError | sqlite3.ProgrammingError)


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection in one of SQLite's modes, `ro` or `rw`."""
    name = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return sqlite3.connect(
        f"file:{name}?mode={mode}", uri=True, isolation_level=None, timeout=0.5, check_same_thread=False
    )


def _is_readable(connection: sqlite3.Connection, path: Path) -> bool:
    try:
        return schema.check(connection, str(path))
    except sqlite3.OperationalError as error:
        # A rollback journal of a dead process must be rolled back by a writer first.
        if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
        return False


def _is_at_rest(path: Path) -> bool:
    """Whether the file alone is the whole journal, without a log beside it."""
    beside = (path.with_name(f"{path.name}{end}") for end in ("-wal", "-journal"))
    return not any(log.exists() and log.stat().st_size for log in beside)


def _open_at_rest(path: Path, position: commit_marker.CommittedPosition | None) -> sqlite3.Connection:
    """Open the journal on a full or read-only disk, where SQLite cannot even create its shared memory."""
    connection = connect(path, "ro&immutable=1")
    try:
        if not schema.check(connection, str(path)):
            raise StorageDenied(str(path), "it has an older format and cannot be migrated here")
        _refuse_lost_end(connection, path, position)
        return connection
    except BaseException:
        connection.close()
        raise


def _prepare(connection: sqlite3.Connection, path: Path, fsync: Fsync) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    is_current = schema.check(connection, str(path))
    if not is_current:
        # Takes effect only before the first table: free pages can be returned to the system.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'OFF' if fsync == 'off' else 'FULL'}")
    if not is_current:
        schema.migrate(connection, str(path))


def _code(error: sqlite3.Error) -> int:
    """The primary error code; errors raised by Python itself have none."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF
