"""Real workers of one store outside of a test: processes of `deputy worker` on a Postgres of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.support.postgres import database_url, migrated

from deputy.journal.postgres.store_address import PostgresSession, StoreAddress
from deputy.placement import dbos_dispatch
from deputy.testing.postgres_server import OwnServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEPUTY = (sys.executable, "-m", "deputy")
KEPT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH")
SETTINGS = "[limits]\nconcurrency = 100\ntasks = 1000\n"


class WorkerCrew:
    """A Postgres with fsync, and the workers and clients of its databases; all are ended by their ids."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._stack = ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="deputy-crew-")))
        # Postgres must be able to enter.
        self.folder.chmod(0o755)
        self.workspace = self.folder / "workspace"
        self.workspace.mkdir()
        home = self.folder / "home"
        (home / ".config/deputy").mkdir(parents=True)
        (home / ".config/deputy/config.toml").write_text(SETTINGS)
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.environ = {**kept, **environ, "HOME": str(home), "DEPUTY_HOME": str(home / ".deputy")}
        self.url = ""
        place = self.folder / "pg"
        place.mkdir(mode=0o755)
        self.server = OwnServer(place, fsync=True)
        self._count = 0
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        # SIGTERM ends everything too.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        self._stack.callback(self._stop_server)
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._stack.close()
        signal.signal(signal.SIGINT, before)

    def use_new_database(self) -> None:
        """Begin with an empty store, and without workers."""
        self.end_workers()
        self._count += 1
        name = f"store_{self._count}"
        session = PostgresSession(StoreAddress(self.server.url))
        try:
            session.run(f"CREATE DATABASE {name}")
        finally:
            session.close()
        self.url = migrated(database_url(self.server.url, name))
        dbos_dispatch.migrate(self.url, StoreAddress(self.url).location)
        self.environ |= {"DEPUTY_STORE": self.url, "DEPUTY_DISPATCH": "dbos"}

    def start_worker(self, slots: int, *, within: Sequence[str] = (), **environ: str) -> subprocess.Popen[bytes]:
        """A worker that is ready; `within` is a command that starts it."""
        command = (*within, *DEPUTY, "worker", "--concurrency", str(slots))
        process = self.start(*command, stderr=subprocess.PIPE, env={**self.environ, **environ})
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        if "worker ready" not in line:
            raise RuntimeError(f"the worker did not start: {line}{process.stderr.read().decode()}")
        self.workers.append(process)
        return process

    def start(self, *command: str, **streams: Any) -> subprocess.Popen[bytes]:
        """A process in the workspace; Ctrl-C does not reach it, because this crew ends it."""
        nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        options: Any = {"env": self.environ, **nothing, **streams}
        process: Any = subprocess.Popen(command, cwd=self.workspace, start_new_session=True, **options)
        self._stack.callback(end, process)
        return process

    def end_workers(self) -> None:
        """End all workers at once, like kill -9."""
        for worker in self.workers:
            end(worker)
        self.workers = []

    def count(self, query: str) -> int:
        """The number that a query gives."""
        session = PostgresSession(StoreAddress(self.url))
        try:
            return session.fetch(query)[0][0]
        finally:
            session.close()

    def _stop_server(self) -> None:
        # A fault may have stopped it.
        with suppress(RuntimeError):
            self.server.stop("immediate")


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process, also a stopped one."""
    if process.poll() is None:
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
