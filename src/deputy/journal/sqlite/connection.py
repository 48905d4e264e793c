"""Connections to the journal's file: how they are set up, how long they wait, and what their errors mean."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from deputy.core.errors import (
    StorageBusy,
    StorageCorrupt,
    StorageDenied,
    StorageError,
    StorageFailed,
    StorageFull,
)
from deputy.journal import home
from deputy.journal.sqlite import commit_marker, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    T = TypeVar("T")

Fsync: TypeAlias = Literal["group", "each", "off"]
"""When a record is durable: with its group, by itself, or whenever the system likes."""

PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.02
BROKEN = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged file raises; its words may themselves be damaged text."""
_CLOSED = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR})
_NO_TEXT = "Could not decode"
"""How Python's own complaint begins about bytes that are no text; it has no code."""
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})


def open_writer(folder: Path, fsync: Fsync, wait_seconds: float = PATIENCE_SECONDS) -> sqlite3.Connection:
    """A connection that writes; home, file and tables are made if they are missing."""
    path = home.make_home(folder) / home.JOURNAL
    promise = _refuse_lost(folder, path)
    if home.make_file(path, schema.fresh):
        # What was said of a journal that was here before does not hold for this one.
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
    folder: Path, wait_seconds: float = PATIENCE_SECONDS, *, is_written: bool = False
) -> sqlite3.Connection | None:
    """A connection that only reads; None when there is no journal. Makes and changes nothing.

    One that this process writes itself is never taken to be at rest, or what it writes later would not be seen.
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
    # An older, empty or half made file is brought up to date once, by a writer.
    open_writer(folder, "group", wait_seconds).close()
    return open_reader(folder, wait_seconds, is_written=is_written)


def _refuse_lost(folder: Path, path: Path) -> commit_marker.CommittedPosition | None:
    """Refuse to make a new journal where the mark or the log shows that there was one; returns what the mark says."""
    # Both are made after the file itself, and so looked at before it.
    promise, log = commit_marker.read_marker(folder), _size(path.with_name(f"{path.name}-wal"))
    size = _size(path)
    if size or not (promise or log):
        return promise
    known = "its log is still there" if promise is None else f"record {promise.seq} of {promise.run!r} was in it"
    raise StorageCorrupt(
        str(path),
        f"it is {'missing' if size is None else 'empty'}, though {known}",
        "Restore it from a backup; or run `deputy doctor --repair`, which starts a new journal.",
    )


def _refuse_lost_end(
    connection: sqlite3.Connection, path: Path, position: commit_marker.CommittedPosition | None
) -> None:
    """Refuse a journal that lacks a record which the mark, read before it was opened, says was durable."""
    if position is None:
        return
    found = connection.execute("SELECT 1 FROM events WHERE run = ? AND seq = ?", position).fetchone()
    # When the mark has changed since, the record may have been removed together with its run.
    if found is None and commit_marker.read_marker(path.parent) == position:
        raise StorageCorrupt(str(path), f"its end is missing, with record {position.seq} of {position.run!r}")


def _close_unchanged(connection: sqlite3.Connection, path: Path) -> None:
    """Close a connection that writes so that the log stays as it is."""
    # The last connection that closes moves the log into the file. One that only reads does not.
    with suppress(sqlite3.Error), closing(connect(path, "ro")) as last:
        last.execute("PRAGMA user_version").fetchone()
        connection.close()
    connection.close()


def _size(path: Path) -> int | None:
    """How large a file is; None when it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def retry_while_busy(do: Callable[[], T], path: Path, wait_seconds: float = PATIENCE_SECONDS) -> T:
    """Do something that another process's lock may keep waiting; after a long bound that is an error of ours."""
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
    """Errors of SQLite in here come out as ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise storage_error(path, error) from error
    except UnicodeDecodeError as error:
        raise StorageCorrupt(str(path), f"it holds damaged text: {error.reason}") from error
    except OSError as error:
        home.explain(path, error)


def storage_error(path: Path, error: sqlite3.Error) -> StorageError:
    """What an error of SQLite means to a person."""
    return meaning(str(path), error, home.disk_of(path))


def meaning(name: str, error: sqlite3.Error, disk: home.Disk) -> StorageError:
    """The same where the disk is known to be so."""
    what, code = str(error), _code(error)
    match code:
        case _ if disk.is_read_only and code in _CLOSED:
            return home.read_only(name)
        case sqlite3.SQLITE_FULL:
            return StorageFull(name, what)
        case sqlite3.SQLITE_IOERR if disk.is_full:
            return StorageFull(name, "no space is left on its disk")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_ERROR:
            # Our statements are right for the tables we made, so that one that fails has found others.
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
    """Whether the file failed, and not the statement."""
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
        # A process died over a file that had no write-ahead log yet: what it left half done is undone by who writes.
        if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
        return False


def _is_at_rest(path: Path) -> bool:
    """Whether the file alone is the whole journal: nothing waits in a log beside it."""
    beside = (path.with_name(f"{path.name}{end}") for end in ("-wal", "-journal"))
    return not any(log.exists() and log.stat().st_size for log in beside)


def _open_at_rest(path: Path, position: commit_marker.CommittedPosition | None) -> sqlite3.Connection:
    """A reader where nothing can be written, not even who reads: on a disk that is full or made for reading only."""
    connection = connect(path, "ro&immutable=1")
    try:
        if not schema.check(connection, str(path)):
            raise StorageDenied(str(path), "it has an older form and cannot be written")
        _refuse_lost_end(connection, path, position)
        return connection
    except BaseException:
        connection.close()
        raise


def _prepare(connection: sqlite3.Connection, path: Path, fsync: Fsync) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    is_current = schema.check(connection, str(path))
    if not is_current:
        # Means something only before the first table is made: space can be given back to the system.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'OFF' if fsync == 'off' else 'FULL'}")
    if not is_current:
        schema.migrate(connection, str(path))


def _code(error: sqlite3.Error) -> int:
    """The primary code; what Python raises by itself has none."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF
