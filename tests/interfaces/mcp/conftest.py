"""MCP clients of two kinds: the SDK's own, and one that writes and reads raw lines, or does not read at all."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from mcp import Client, StdioServerParameters

from deputy.interfaces.mcp.server import make_server
from deputy.interfaces.mcp.server_state import Options, ServerState
from deputy.journal.registry import entry_dict, list_runs
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

LEGACY, MODERN = "legacy", "2026-07-28"
ERAS = (LEGACY, MODERN)
TOKEN = "a-token-for-tests-alone"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def turn(text: str = "", **fields) -> dict:
    return {"text": text, **fields}


def talk(*turns: dict, when: str = "", times: int = 1) -> dict:
    return {"turns": list(turns), "when": when, "times": times}


def tasks(*labels: str, **fields) -> dict:
    return {"tasks": [{"label": label, "prompt": f"the work of {label}"} for label in labels], **fields}


def stdio(house, *arguments: str, **env: str) -> StdioServerParameters:
    command = ["-m", "deputy", "mcp", *arguments]
    return StdioServerParameters(
        command=sys.executable, args=command, env={**house.env, **env}, cwd=str(house.workspace)
    )


@asynccontextmanager
async def here(house, *, mode: str = LEGACY, client: dict | None = None, **options):
    """A client of a server in this process."""
    hub = ServerState(Options(workspace=house.workspace, home=house.home, **options))
    async with hub, Client(make_server(hub), mode=mode, **(client or {})) as connected:
        yield connected
        # What is cut off by leaving was not cancelled by anybody.
        hub.is_leaving = True


@contextmanager
def serve_http(
    house,
    *arguments: str,
    ending: int = signal.SIGTERM,
    stderr: int = subprocess.DEVNULL,
    files: int | None = None,
    **env: str,
):
    """A server over HTTP as a process of its own, which may open so many files; gives its address."""
    limited = () if files is None else ("sh", "-c", f'ulimit -n {files}; exec "$@"', "sh")
    process = subprocess.Popen(
        [*limited, sys.executable, "-m", "deputy", "mcp", "--http", "0", "--json", *(arguments or ("--yes",))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**house.env, "DEPUTY_MCP_TOKEN": TOKEN, **env},
        cwd=house.workspace,
    )
    house._started.append(process)
    output = json.loads("".join(process.stdout.readline().decode() for _ in range(4)))
    assert output["token_in"] == "DEPUTY_MCP_TOKEN"
    yield output["url"]
    process.send_signal(ending)
    assert process.wait(60) == (0 if ending == signal.SIGTERM else -ending)


def text_of(result) -> str:
    return result.content[0].text


def entries(house) -> list[dict]:
    """What `deputy ps --all` shows, callers before callees."""
    reader = SqliteQueries.open_any(house.home)
    if reader is None:
        return []
    with reader:
        return [entry_dict(standing, time.time()) for standing in list_runs(reader, ended=10_000)]


def until(is_so: Callable[[], object], seconds: float = 90):
    """What something comes to, once it is so."""
    deadline = time.monotonic() + seconds
    while not (value := is_so()):
        assert time.monotonic() < deadline, "it never was so"
        a_moment()
    return value


def a_moment() -> None:
    """Let others do something: nothing tells when another process has."""
    select.select([], [], [], 0.05)


class Wire:
    """A client by hand: JSON lines to a server that is a process of its own."""

    def __init__(self, house, *arguments: str, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "deputy", "mcp", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**house.env, **env},
            cwd=house.workspace,
        )
        house._started.append(self.process)
        self._next = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.go()

    def send(self, method: str, params: dict | None = None, *, is_notification: bool = False) -> int:
        self._next += 1
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if not is_notification:
            message["id"] = self._next
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return self._next

    def shake_hands(self) -> None:
        capabilities = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": META[list(META)[1]]}
        self.answer(self.send("initialize", capabilities))
        self.send("notifications/initialized", is_notification=True)

    def call(self, tool: str, arguments: dict, **more) -> int:
        return self.send("tools/call", {"name": tool, "arguments": arguments, **more})

    def ask(self, method: str, params: dict, capabilities: dict | None = None) -> dict:
        """A modern request and its whole answer."""
        meta = {**META, "io.modelcontextprotocol/clientCapabilities": capabilities or {}}
        return self.answer(self.send(method, {**params, "_meta": meta}))

    def read(self) -> dict:
        line = self.process.stdout.readline()
        assert line, "the server has closed its output"
        return json.loads(line)

    def answer(self, number: int) -> dict:
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
                pipe.close()
        return self.process.wait(60)
