"""A worker behind network links of its own, so that one of them can be cut without a word to either side.

Everything is in network namespaces of this process and its children: the network of the machine is not touched.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.real_workers import WorkerCrew

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
INSIDE = "DEPUTY_CAMPAIGN_NAMESPACE"
_PORT = 5432
_NEEDED = ("unshare", "nsenter", "ip", "mount")


def lacking() -> str:
    """Why namespaces cannot be used here; empty if they can."""
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        return f"skipped: {', '.join(missing)} not installed"
    if os.geteuid() != 0:
        return "skipped: network namespaces and mounts need root"
    return ""


def enter_namespaces(module: str) -> None:
    """Run this program again with a network and mounts of its own, unless it has them."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, "-m", module, *sys.argv[1:]])
    _ip("link", "set", "lo", "up")


class WorkerNetwork:
    """A network namespace for a worker, with a link to the database and another to everything else."""

    database, other = "10.213.0.1", "10.213.1.1"
    """The addresses of this side."""

    def __init__(self, crew: WorkerCrew, provider_port: int) -> None:
        """A store and a provider of this side can be reached from it."""
        holder = crew.start("unshare", "--net", "sleep", "infinity")
        ours = Path("/proc/self/ns/net").readlink()
        while Path(f"/proc/{holder.pid}/ns/net").readlink() == ours:
            os.sched_yield()
        self.command = ("nsenter", "--target", str(holder.pid), "--net", "--")
        for name, address in (("db", self.database), ("more", self.other)):
            _ip("link", "add", f"{name}0", "type", "veth", "peer", "name", f"{name}1", "netns", str(holder.pid))
            _ip("address", "add", f"{address}/30", "dev", f"{name}0")
            _ip("link", "set", f"{name}0", "up")
            self._inside("address", "add", f"{address[:-1]}2/30", "dev", f"{name}1")
            self._inside("link", "set", f"{name}1", "up")
        socket = str(crew.server.place / ".s.PGSQL.5432")
        is_ready = threading.Event()

        async def relay() -> None:
            await _relay(self.database, _PORT, lambda: asyncio.open_unix_connection(socket))
            await _relay(self.other, provider_port, lambda: asyncio.open_connection("127.0.0.1", provider_port))
            is_ready.set()
            await asyncio.Event().wait()

        threading.Thread(target=lambda: asyncio.run(relay()), daemon=True).start()
        is_ready.wait()

    def cut(self) -> None:
        """Lose every packet between the worker and the database."""
        _ip("link", "set", "db0", "down")

    def heal(self) -> None:
        """Let packets pass again."""
        _ip("link", "set", "db0", "up")

    def remove(self) -> None:
        """Remove the links."""
        for name in ("db0", "more0"):
            _ip("link", "delete", name)

    def _inside(self, *arguments: str) -> None:
        subprocess.run([*self.command, "ip", *arguments], check=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


async def _relay(address: str, port: int, connect: Callable[[], Awaitable[Streams]]) -> None:
    """Let a server be reached at another address."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while part := await reader.read(65_536):
                writer.write(part)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await connect()
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, back), copy(there, writer))

    await asyncio.start_server(serve, address, port)
