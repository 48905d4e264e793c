"""An editor: the client side of the Agent Client Protocol, connected to a server in this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from msgspec import json

from deputy.backends.acp import jsonrpc
from deputy.interfaces.acp.acp_server import AcpServer, read_line
from deputy.interfaces.acp.acp_session import AcpOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


class _Wire:
    """A sink whose lines the other side receives."""

    def __init__(self, receive: Callable[[bytes], Awaitable[object]]) -> None:
        self._receive = receive
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()

    def write(self, data: bytes, /) -> None:
        self._lines.put_nowait(data)

    async def drain(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    async def pump(self) -> None:
        while True:
            await self._receive(await self._lines.get())


class Editor:
    """Opens sessions, keeps every update, and answers permission requests with `choose`."""

    def __init__(self, workspace: Path, **options: Any) -> None:
        self.workspace = workspace
        self.server = AcpServer(AcpOptions(**options))
        self.updates: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.choose: Callable[[dict[str, Any]], str | None] = lambda asked: "yes"
        """The option to select; None leaves a request unanswered."""
        self.withdrawn: list[int] = []
        self._news = asyncio.Event()
        self._connection = jsonrpc.Connection(self._serve)
        self._to_server, self._to_editor = _Wire(self._for_server), _Wire(self._for_editor)
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        await self._group.__aenter__()
        self._connection.open(self._to_server)
        self.server.connection.open(self._to_editor)
        self._pumps = [self._group.create_task(wire.pump()) for wire in (self._to_server, self._to_editor)]
        assert (await self.ask("initialize", protocolVersion=1))["protocolVersion"] == 1
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.server.__aexit__(None, None, None)
        for pump in self._pumps:
            pump.cancel()
        await self._group.__aexit__(None, None, None)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request; an error fails the test."""
        replied = await self._connection.ask(method, params)
        assert isinstance(replied, jsonrpc.RpcResult), replied
        return replied.result

    async def refused(self, method: str, **params: Any) -> tuple[int, str]:
        """The code and the words of a refused request."""
        replied = await self._connection.ask(method, params)
        assert isinstance(replied, jsonrpc.RpcError), replied
        return replied.code, replied.message

    def notify(self, method: str, **params: Any) -> None:
        self._connection.notify(method, params)

    async def open(self) -> str:
        return (await self.ask("session/new", cwd=str(self.workspace), mcpServers=[]))["sessionId"]

    async def load(self, session: str, method: str = "session/load") -> None:
        await self.ask(method, sessionId=session, cwd=str(self.workspace), mcpServers=[])

    async def prompt(self, session: str, text: str) -> str:
        """Run a turn; why it stopped."""
        return (await self.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}]))[
            "stopReason"
        ]

    async def until(self, is_so: Callable[[], object]) -> None:
        while not is_so():
            self._news.clear()
            await self._news.wait()

    @property
    def text(self) -> str:
        """What the agent has said."""
        return "".join(one["content"]["text"] for one in self.of("agent_message_chunk"))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.updates if one["sessionUpdate"] == kind]

    def ends(self) -> dict[str, str]:
        """The last status of each tool call."""
        return {one["toolCallId"]: one["status"] for one in self.updates if "toolCallId" in one}

    async def _for_server(self, line: bytes) -> None:
        await self.server.receive(read_line(line))

    async def _for_editor(self, line: bytes) -> None:
        message = jsonrpc.read(line)
        assert message is not None, line
        await self._connection.receive(message)
        self._news.set()

    async def _serve(self, said: jsonrpc.RpcRequest) -> bytes | None:
        # What is sent can be read anew.
        params = json.decode(json.encode(said.params))
        if said.method == "session/update":
            self.updates.append(params["update"])
        elif said.method == "$/cancel_request":
            self.withdrawn.append(params["requestId"])
        elif said.id is not None:
            self.asked.append(params)
            chosen = self.choose(params)
            if chosen is not None:
                return jsonrpc.answer(said.id, {"outcome": {"outcome": "selected", "optionId": chosen}})
        return None
