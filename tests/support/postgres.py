"""Postgres for tests: one server per session, shared by all test processes, and a fresh database per test."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from deputy.journal.postgres import postgres_schema
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress
from deputy.placement import dbos_dispatch
from deputy.testing.postgres_server import OwnServer

_TEMPLATE = "deputy_template"
_QUEUES = "deputy_queues"
_LOCK = 0x71756575
_LOOK_SECONDS = 0.5
# The processes of one session are forked from the one that imported this.
_SESSION = os.getpid()
_WATCHERS: list[subprocess.Popen[bytes]] = []
_TABLES = (
    *("events", "runs", "leases", "owners", "inbox", "progress", "pins", "rate_limits", "errors", "nested"),
    *("blobs", "bundles", "bundle_uses", "budgets", "holds"),
)


def fresh_database() -> str:
    """The address of a new database with the tables of Deputy."""
    server, name = _server(), f"t{uuid4().hex}"
    _administer(server, f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY wal_log")
    return database_url(server, name)


def queue_database() -> str:
    """The address of a new database with the tables of Deputy and of the queues."""
    server, name = _server(), f"t{uuid4().hex}"
    template = database_url(server, _QUEUES)
    session = PostgresSession(StoreAddress(server))
    try:
        session.fetch("SELECT pg_advisory_lock($1)", _LOCK)
        if not session.fetch("SELECT 1 FROM pg_database WHERE datname = $1 AND datallowconn", _QUEUES + "_ready"):
            _administer(server, f"DROP DATABASE IF EXISTS {_QUEUES}")
            _administer(server, f"CREATE DATABASE {_QUEUES} TEMPLATE {_TEMPLATE} STRATEGY wal_log")
            dbos_dispatch.migrate(template, _QUEUES)
            _administer(server, f"CREATE DATABASE {_QUEUES}_ready TEMPLATE {_TEMPLATE} STRATEGY wal_log")
        _administer(server, f"CREATE DATABASE {name} TEMPLATE {_QUEUES} STRATEGY wal_log")
    finally:
        session.close()
    return database_url(server, name)


def emptied_queue_database() -> str:
    """The address of a database of this process with the tables of the queues, all empty."""
    url = _own_queue_database()
    _empty(url, "dbos.workflow_status, dbos.workflow_input")
    return url


def emptied_database() -> str:
    """The address of a database of this process with empty tables: faster than a fresh one."""
    url = _own_database()
    _empty(url)
    return url


def _empty(url: str, *more: str) -> None:
    session = PostgresSession(StoreAddress(url))
    try:
        session.run(f"TRUNCATE {', '.join((*_TABLES, *more))} CASCADE; UPDATE generation SET number = number + 1")
    finally:
        session.close()


@cache
def _own_queue_database() -> str:
    return queue_database()


@cache
def _own_database() -> str:
    return fresh_database()


def empty_database() -> str:
    """The address of a new database without tables."""
    server, name = _server(), f"t{uuid4().hex}"
    _administer(server, f"CREATE DATABASE {name}")
    return database_url(server, name)


def migrated(url: str) -> str:
    """A database, with the tables of Deputy."""
    session = PostgresSession(StoreAddress(url))
    try:
        postgres_schema.migrate(session)
    finally:
        session.close()
    return url


def database_url(server: str, name: str) -> str:
    """The address of a database on a server."""
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def administer(statement: str) -> None:
    """Run a statement as the administrator."""
    _administer(_server(), statement)


def _administer(server: str, statement: str) -> None:
    session = PostgresSession(StoreAddress(server))
    try:
        session.run(statement)
    finally:
        session.close()


@cache
def _server() -> str:
    """The address of the server: `DEPUTY_TEST_POSTGRES`, or one that this session starts."""
    place = Path(tempfile.gettempdir()) / f"deputy-pg-{_SESSION}"
    place.mkdir(exist_ok=True, mode=0o755)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = place / "ready"
        url = os.environ.get("DEPUTY_TEST_POSTGRES")
        is_own = False
        if not ready.exists():
            is_own = url is None
            url = url or OwnServer(place).start()
            for name in (f"{_QUEUES}_ready", _QUEUES, _TEMPLATE):
                _administer(url, f"DROP DATABASE IF EXISTS {name}")
            _administer(url, f"CREATE DATABASE {_TEMPLATE}")
            migrated(database_url(url, _TEMPLATE))
            ready.write_text(url)
        (place / "users").mkdir(exist_ok=True)
        (place / "users" / f"{os.getpid()}").touch()
        if is_own:
            _watch(place)
        atexit.register(_leave, place, os.getpid())
        return ready.read_text()


def _leave(place: Path, pid: int) -> None:
    """The last process of the session stops the server."""
    if os.getpid() != pid:
        return
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (place / "users" / f"{pid}").unlink(missing_ok=True)
        if any(_lives(user) for user in (place / "users").iterdir()):
            return
        _end(place)


def _lives(user: Path) -> bool:
    try:
        return Path(f"/proc/{user.name}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _end(place: Path) -> None:
    if (place / "data").exists():
        OwnServer(place).stop("immediate")
    shutil.rmtree(place, ignore_errors=True)


def _watch(place: Path) -> None:
    """Let a process stop the server when all its users were killed: then none of them can."""
    root = Path(__file__).parents[2]
    nothing = subprocess.DEVNULL
    command = [sys.executable, "-m", "tests.support.postgres", str(place)]
    # Kept, because it outlives this process.
    _WATCHERS.append(
        subprocess.Popen(command, cwd=root, start_new_session=True, stdin=nothing, stdout=nothing, stderr=nothing)
    )


def watch(place: Path) -> None:
    """Stop the server of a session when its last process has ended."""
    while (place / "users").exists():
        time.sleep(_LOOK_SECONDS)
        with suppress(FileNotFoundError), (place / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not any(_lives(user) for user in (place / "users").iterdir()):
                _end(place)


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
