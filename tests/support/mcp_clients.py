"""MCP clients of two kinds: the SDK's own, and one that writes and reads raw lines, or does not read at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from mcp import Client, StdioServerParameters
from tests.support.fork_server import Popen, forked_deputy

from deputy.interfaces.mcp.server import make_server
from deputy.interfaces.mcp.server_state import Options, ServerState

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from tests.support.command_house import CommandHouse

LEGACY, MODERN = "legacy", "2026-07-28"
ERAS = (LEGACY, MODERN)
TOKEN = "a-token-for-tests-alone"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def tasks(*labels: str, **fields: Any) -> dict[str, Any]:
    return {"tasks": [{"label": label, "prompt": f"the work of {label}"} for label in labels], **fields}


def stdio(house: CommandHouse, *arguments: str, **env: str) -> StdioServerParameters:
    command, *options = forked_deputy()
    return StdioServerParameters(
        command=command, args=[*options, "mcp", *arguments], env={**house.env, **env}, cwd=str(house.workspace)
    )


@asynccontextmanager
async def here(
    house: CommandHouse, *, mode: str = LEGACY, client: dict[str, Any] | None = None, **options: Any
) -> AsyncGenerator[Client]:
    """A client of a server in this process."""
    hub = ServerState(Options(workspace=house.workspace, home=house.home, **options))
    async with hub, Client(make_server(hub), mode=mode, **(client or {})) as connected:
        yield connected
        # What is cut off by leaving was not cancelled.
        hub.is_leaving = True


@contextmanager
def serve_http(
    house: CommandHouse,
    *arguments: str,
    ending: int = signal.SIGTERM,
    stderr: int = subprocess.DEVNULL,
    files: int | None = None,
    **env: str,
) -> Generator[str]:
    """A server over HTTP as a process of its own, which may open so many files; gives its address."""
    limited = () if files is None else ("sh", "-c", f'ulimit -n {files}; exec "$@"', "sh")
    process = Popen(
        [*limited, sys.executable, "-m", "deputy", "mcp", "--http", "0", "--json", *(arguments or ("--yes",))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**house.env, "DEPUTY_MCP_TOKEN": TOKEN, **env},
        cwd=house.workspace,
    )
    house.started.append(process)
    output = json.loads("".join(_pipe(process.stdout).readline().decode() for _ in range(4)))
    assert output["token_in"] == "DEPUTY_MCP_TOKEN"
    yield output["url"]
    process.send_signal(ending)
    assert process.wait(60) == (0 if ending == signal.SIGTERM else -ending)


def text_of(result: Any) -> str:
    return result.content[0].text


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


class Wire:
    """A client by hand: JSON lines to a server that is a process of its own."""

    def __init__(self, house: CommandHouse, *arguments: str, **env: str) -> None:
        self.process = Popen(
            [sys.executable, "-m", "deputy", "mcp", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**house.env, **env},
            cwd=house.workspace,
        )
        house.started.append(self.process)
        self._next = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.go()

    def send(self, method: str, params: dict[str, Any] | None = None, *, is_notification: bool = False) -> int:
        self._next += 1
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if not is_notification:
            message["id"] = self._next
        _pipe(self.process.stdin).write(json.dumps(message).encode() + b"\n")
        _pipe(self.process.stdin).flush()
        return self._next

    def shake_hands(self) -> None:
        capabilities = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": META[list(META)[1]]}
        self.answer(self.send("initialize", capabilities))
        self.send("notifications/initialized", is_notification=True)

    def call(self, tool: str, arguments: dict[str, Any], **more: Any) -> int:
        return self.send("tools/call", {"name": tool, "arguments": arguments, **more})

    def ask(self, method: str, params: dict[str, Any], capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
        """A modern request and its whole answer."""
        meta = {**META, "io.modelcontextprotocol/clientCapabilities": capabilities or {}}
        return self.answer(self.send(method, {**params, "_meta": meta}))

    def read(self) -> dict[str, Any]:
        line = _pipe(self.process.stdout).readline()
        assert line, "the server has closed its output"
        return json.loads(line)

    def answer(self, number: int) -> dict[str, Any]:
        while (message := self.read()).get("id") != number:
            pass
        return message

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def go(self) -> int:
        """Be gone, as a client is that was killed; the server's exit code."""
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                _pipe(pipe).close()
        return self.process.wait(60)
