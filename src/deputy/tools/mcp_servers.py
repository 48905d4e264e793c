"""Tools of MCP servers that the user configured: started when first wanted, watched over, bounded in time and size."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self, cast

from msgspec import json

from deputy.core.errors import DeputyError, UsageError
from deputy.engine.ports import ToolOutput, ToolTraits
from deputy.tools.truncate import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mcp import Client
    from mcp_types import CallToolResult
    from mcp_types import Tool as Listed

    from deputy.config.settings import McpServer
    from deputy.engine.ports import ToolContext

PREFIX = "mcp__"
START_SECONDS = 30.0
MOST_FAILURES = 3
"""How often in a row a server may fail to start before it is left alone."""
_MOST_TOOLS = 200
_MOST_WORDS = 2000
_MOST_SCHEMA = 32 * 1024
_MOST_SCHEMAS = 256 * 1024
"""Of all tools of a server together: they stand before every turn of a subagent that is given them all."""
_MOST_PAGES = 20
_LONGEST_NAME = 64
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class McpServers:
    """The servers by name; nothing is started before one of their tools is wanted."""

    def __init__(self, servers: Mapping[str, McpServer]) -> None:
        self._links = {name: _Link(name, server) for name, server in servers.items()}
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        for link in self._links.values():
            link.close()
        await self._group.__aexit__(None, None, None)

    async def ready(self, wanted: Iterable[str]) -> None:
        """Have the servers at work whose tools are named; one that does not start leaves its tools out."""
        names = {_server_of(name) for name in wanted if name.startswith(PREFIX)}
        async with asyncio.TaskGroup() as starting:
            for link in (self._links[name] for name in names if name in self._links):
                starting.create_task(link.try_to_open(self._group))

    async def named(self, wanted: Iterable[str]) -> dict[str, bool]:
        """The tools that these names stand for, and whether each only reads; a server's name is all of its readers."""
        asked = [name for name in wanted if name.startswith(PREFIX)]
        found: dict[str, bool] = {}
        for name in asked:
            link = self._links.get(_server_of(name))
            if link is None:
                known = ", ".join(self._links) or "none"
                raise UsageError("tools", name, f"there is no MCP server of that name; configured are: {known}")
            await link.open(self._group)
            found |= link.meant_by(name)
        return found

    async def every(self) -> dict[str, bool]:
        """All tools of all servers that start, and whether each only reads."""
        await self.ready(f"{PREFIX}{name}" for name in self._links)
        return {tool.name: tool.traits.reads_only for tool in self.tools()}

    def tools(self) -> tuple[McpTool, ...]:
        """The tools of the servers that were started."""
        return tuple(tool for link in self._links.values() for tool in link.tools.values())


class McpTool:
    """One tool of a server, as models know it."""

    def __init__(self, link: _Link, listed: Listed, name: str) -> None:
        reads = listed.annotations is not None and listed.annotations.read_only_hint is True
        self._link = link
        self.name = name
        self.known_as = listed.name
        """What its server calls it."""
        # What the server says of itself is all there is to go by; what it does not say is taken for the worst.
        self.traits = ToolTraits(
            reads_only=reads,
            repeatable=reads,
            needs_approval=not reads,
            risk="low" if reads else "high",
            limit_seconds=link.server.timeout_seconds,
        )
        self.description = f"({link.name}, an MCP server) {_words(listed.description or listed.title or name)}"
        self.schema: dict[str, Any] = listed.input_schema

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Call the tool; what the server says is data, and what goes wrong is told to the model."""
        try:
            text, is_error = await self._link.call(self, dict(arguments))
        except DeputyError as error:
            return ToolOutput(text=str(error), is_error=True)
        return ToolOutput(text=cut(text, context.output_bytes, "ask for less"), is_error=is_error)


class _Link:
    """One server: its process or address, kept open by a task of its own, and the tools it has."""

    def __init__(self, name: str, server: McpServer) -> None:
        self.name = name
        self.server = server
        self.tools: dict[str, McpTool] = {}
        self._group: asyncio.TaskGroup | None = None
        self._client: asyncio.Future[Client] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._done = asyncio.Event()
        """Set when the connection that is open now is of no more use."""
        self._failures = 0
        self._timeouts = 0
        """How many calls in a row took longer than their time."""

    def close(self) -> None:
        """End it; one that is still starting is not waited for."""
        self._done.set()
        if self._client is not None and self._keeper is not None and not self._client.done():
            _refuse(self._client, f"The MCP server {self.name!r} is not wanted any more.")
            self._keeper.cancel()

    async def try_to_open(self, group: asyncio.TaskGroup) -> None:
        """Start it if it can be; what it lacks then shows in the tools there are."""
        try:
            await self.open(group)
        except DeputyError:
            return

    async def open(self, group: asyncio.TaskGroup) -> Client:
        """The open connection, made by whoever needs it first."""
        self._group = group
        if self._client is None:
            if self._failures >= MOST_FAILURES:
                raise DeputyError(f"The MCP server {self.name!r} failed {MOST_FAILURES} times and is left alone.")
            self._client = asyncio.get_running_loop().create_future()
            self._done = asyncio.Event()
            self._keeper = group.create_task(self._keep(self._client, self._done))
        return await asyncio.shield(self._client)

    async def call(self, tool: McpTool, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Call one of its tools within its time; what it says, and whether it says that it went wrong."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, HEADER_MISMATCH

        if self._group is None:
            raise DeputyError(f"The MCP server {self.name!r} is not at work.")
        client = await self.open(self._group)
        self._check(tool)
        try:
            async with asyncio.timeout(self.server.timeout_seconds):
                result = await _answer(client, tool.known_as, arguments)
        except TimeoutError:
            self._timeouts += 1
            if self._timeouts >= MOST_FAILURES:
                # It hangs, as far as can be told: the next call has another.
                self._forget()
            raise DeputyError(f"The MCP server {self.name!r} took longer than its time.") from None
        except MCPError as error:
            if error.error.code in (CONNECTION_CLOSED, HEADER_MISMATCH):
                # It has gone, or goes by another list of its tools than was read: the next call reads it again.
                self._forget()
            raise DeputyError(f"The MCP server {self.name!r} failed: {_words(str(error))}") from error
        except Exception as error:
            # Whatever somebody else's server answers, it is never our own mistake.
            raise DeputyError(f"The MCP server {self.name!r} answered wrongly: {_reason(error)}") from error
        self._timeouts = 0
        return result

    def _check(self, tool: McpTool) -> None:
        """Refuse a tool that was granted as one that only reads, and since a new start is none or is not there."""
        now = self.tools.get(tool.name)
        if now is None or (tool.traits.reads_only and not now.traits.reads_only):
            raise DeputyError(f"The MCP server {self.name!r} does not offer {tool.name!r} as it did; nothing was done.")

    def _forget(self) -> None:
        """The connection is gone: the next call makes another."""
        self._done.set()
        self._client = None
        self._timeouts = 0

    def meant_by(self, name: str) -> dict[str, bool]:
        """The tools that a name stands for."""
        if name in (f"{PREFIX}{self.name}", f"{PREFIX}{self.name}__*"):
            return {tool.name: True for tool in self.tools.values() if tool.traits.reads_only}
        if name not in self.tools:
            known = ", ".join(self.tools) or "none"
            raise UsageError("tools", name, f"the server has no such tool; it has: {known[:500]}")
        return {name: self.tools[name].traits.reads_only}

    async def _keep(self, opened: asyncio.Future[Client], done: asyncio.Event) -> None:
        """Hold the connection until the end, or until it breaks: the next call makes another."""
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(START_SECONDS):
                    client = await stack.enter_async_context(await _client_of(self.server, stack))
                    self.tools = self._offered(await _listed(client))
                self._failures = 0
                opened.set_result(client)
                await done.wait()
        except Exception as error:  # noqa: BLE001  whatever somebody else's server does, the others go on
            self._failures += 1
            if not opened.done():
                _refuse(opened, f"The MCP server {self.name!r} did not start: {_reason(error)}")
        finally:
            if self._client is opened:
                self._client = None

    def _offered(self, listed: list[Listed]) -> dict[str, McpTool]:
        """The tools that models can be told of: named as models may, of a bounded size, and wanted by the user."""
        offered: dict[str, McpTool] = {}
        left = _MOST_SCHEMAS
        for tool in listed:
            name = f"{PREFIX}{self.name}__{''.join(c if c in _LETTERS else '_' for c in tool.name)}"
            is_wanted = self.server.tools is None or tool.name in self.server.tools
            size = len(json.encode(tool.input_schema))
            if is_wanted and name not in offered and len(name) <= _LONGEST_NAME and size <= min(left, _MOST_SCHEMA):
                offered[name] = McpTool(self, tool, name)
                left -= size
        return offered


def _refuse(opened: asyncio.Future[Client], words: str) -> None:
    """Tell whoever waits for a connection why there is none; if nobody does, there is nobody to tell."""
    opened.set_exception(DeputyError(words))
    opened.exception()


async def _listed(client: Client) -> list[Listed]:
    """The tools that a server tells of, page by page and not without end."""
    tools: list[Listed] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None or len(tools) >= _MOST_TOOLS:
            break
    return tools[:_MOST_TOOLS]


async def _client_of(server: McpServer, stack: AsyncExitStack) -> Client:
    from mcp import Client

    if server.command is not None:
        from deputy.tools.mcp_program import program_streams

        return Client(program_streams(server.command, server.args, server.env), cache=None)
    from mcp.client.streamable_http import streamable_http_client

    from deputy.tools.mcp_http import http_client

    http = await stack.enter_async_context(
        http_client(server.headers, connect_seconds=START_SECONDS, read_seconds=server.timeout_seconds)
    )
    return Client(streamable_http_client(server.url or "", http_client=http), cache=None)


async def _answer(client: Client, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    """Call a tool, and of its answer take the text and whether it is an error."""
    from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

    # Not by the client's own call, which matches the answer with the server's own patterns: some never end.
    request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
    result = await client.session.send_request(request, CallToolResult)
    return _text_of(result), result.is_error


def _server_of(name: str) -> str:
    return name.removeprefix(PREFIX).partition("__")[0]


def _text_of(result: CallToolResult) -> str:
    parts: list[str] = []
    for block in result.content:
        if block.type == "text":
            parts.append(block.text)
        elif block.type == "resource" and hasattr(block.resource, "text"):
            parts.append(getattr(block.resource, "text", ""))
        else:
            parts.append(f"[{block.type}: not shown]")
    if not parts and result.structured_content is not None:
        parts.append(json.encode(result.structured_content).decode())
    return "\n".join(parts)


def _words(text: str) -> str:
    """What a server says, on bounded space and without what could deceive."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[:_MOST_WORDS]).split())


def _reason(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return _reason(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return _words(f"{type(error).__name__}: {error}")[:300]
