import asyncio
import os
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.house import house
from tests.support.workspace_machine import repository, store, submitter, worker

from deputy.engine.ports import ToolContext
from deputy.tools.urls import networks
from deputy.tools.web import Web
from deputy.tools.workspace import Workspace

__all__ = ["house", "repository", "store", "submitter", "worker"]

SERVER = "127.77.77.77"
"""Where test servers listen: the only loopback address that is allowed, so that all others stay forbidden."""


@pytest.fixture
def workspace(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    return Workspace(root)


@pytest.fixture
def root(workspace):
    return Path(workspace.root)


@pytest.fixture
def call():
    """Run one call of a tool from a test that is not async."""

    def call(tool, /, *, output_bytes=50_000, **arguments):
        return asyncio.run(tool.run(arguments, ToolContext(call_id=f"call-{os.getpid()}", output_bytes=output_bytes)))

    return call


@pytest.fixture
def children():
    """The child processes that this one starts in the test, with all below them, by id."""

    def living():
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                except OSError:
                    continue
                if state != "Z":
                    parents[int(entry.name)] = int(parent)
        found = {os.getpid()}
        while below := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= below
        return found

    before = living()
    return lambda: living() - before


@pytest.fixture
def until():
    """Let others go on until something is true."""

    async def until(condition):
        for _ in range(1_000_000):
            if condition():
                return
            await asyncio.sleep(0)
        pytest.fail(f"{condition} never became true")

    return until


@pytest.fixture
def serve():
    """A server on a real socket that answers every connection with a coroutine, for the length of a block."""

    @asynccontextmanager
    async def serve(answer):
        tasks = set()

        async def handle(reader, writer):
            tasks.add(asyncio.current_task())
            try:
                request = await reader.readuntil(b"\r\n\r\n")
                await answer(request, writer)
                await writer.drain()
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(handle, SERVER, 0)
        try:
            yield f"http://{SERVER}:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks) if tasks else None

    return serve


@pytest.fixture
def local_web():
    """The web with the test servers' address allowed, and every name at that address unless told otherwise."""

    def local_web(resolve=None):
        async def at_the_server(_):
            return [SERVER]

        return Web(allowed=networks(f"{SERVER}/32"), resolve=resolve or at_the_server)

    return local_web
