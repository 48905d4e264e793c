"""Tools of the user's MCP servers: servers start on first use, and are limited in time and size."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self, cast

from msgspec import json

from deputy.core.errors import DeputyError, UsageError
from deputy.engine.ports import ToolOutput, ToolTraits
from deputy.tools.tool_text import cut, one_line, safe_name

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
"""Failures in a row after which a server is not started again."""
_MOST_TOOLS = 200
_MOST_WORDS = 2000
_MOST_SCHEMA = 32 * 1024
_MOST_SCHEMAS = 256 * 1024
"""Limit for all schemas of a server together: a model gets them with every request."""
_MOST_PAGES = 20
_LONGEST_NAME = 64


class McpServers:
    """The servers by name; a server starts when one of its tools is needed."""

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
        """Start the servers of these tools; a server that does not start offers no tools."""
        names = {_server_of(name) for name in wanted if name.startswith(PREFIX)}
        async with asyncio.TaskGroup() as starting:
            for link in (self._links[name] for name in names if name in self._links):
                starting.create_task(link.try_to_open(self._group))

    async def named(self, wanted: Iterable[str]) -> dict[str, bool]:
        """The tools of these names, and whether each is read-only; a server's name means all its read-only tools."""
        found: dict[str, bool] = {}
        for name in (name for name in wanted if name.startswith(PREFIX)):
            link = self._links.get(_server_of(name))
            if link is None:
                known = ", ".join(self._links) or "none"
                raise UsageError("tools", name, f"no MCP server has that name; configured servers: {known}")
            await link.open(self._group)
            found |= link.meant_by(name)
        return found

    async def every(self) -> dict[str, bool]:
        """All tools of all servers that start, and whether each is read-only."""
        await self.ready(f"{PREFIX}{name}" for name in self._links)
        return {tool.name: tool.traits.reads_only for tool in self.tools()}

    def tools(self) -> tuple[McpTool, ...]:
        """The tools of the started servers."""
        return tuple(tool for link in self._links.values() for tool in link.tools.values())


class McpTool:
    """One tool of a server."""

    def __init__(self, link: _Link, listed: Listed, name: str) -> None:
        reads = listed.annotations is not None and listed.annotations.read_only_hint is True
        self._link = link
        self.name = name
        self.known_as = listed.name
        """Its name on the server."""
        # Only the server can say that a tool is read-only; without that hint it counts as writing.
        self.traits = ToolTraits(
            reads_only=reads,
            repeatable=reads,
            needs_approval=not reads,
            risk="low" if reads else "high",
            limit_seconds=link.server.timeout_seconds,
        )
        self.description = (
            f"({link.name}, an MCP server) {one_line((listed.description or listed.title or name)[:_MOST_WORDS])}"
        )
        self.schema: dict[str, Any] = listed.input_schema

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Call the tool; a failure becomes an error output."""
        try:
            text, is_error = await self._link.call(self, dict(arguments))
        except _ServerFailed as error:
            return ToolOutput(text=error.words, is_error=True, is_our_own=True, data=error.quoted)
        return ToolOutput(text=cut(text, context.output_bytes, "ask for less"), is_error=is_error)


class _ServerFailed(DeputyError):
    """A server failed; `quoted` is what it said, which is not our own."""

    def __init__(self, words: str, quoted: str = "") -> None:
        super().__init__(f"{words.removesuffix('.')}: {quoted}" if quoted else words)
        self.words = words
        self.quoted = quoted


class _Link:
    """One server: its connection, held open by its own task, and its tools."""

    def __init__(self, name: str, server: McpServer) -> None:
        self.name = name
        self.server = server
        self.tools: dict[str, McpTool] = {}
        self._group: asyncio.TaskGroup | None = None
        self._client: asyncio.Future[Client] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._done = asyncio.Event()
        """Set when the current connection must close."""
        self._failures = 0
        self._timeouts = 0
        """Timed-out calls in a row."""

    def close(self) -> None:
        """Close the connection; a start in progress is cancelled."""
        self._done.set()
        if self._client is not None and self._keeper is not None and not self._client.done():
            _refuse(self._client, _ServerFailed(f"The MCP server {self.name!r} was closed."))
            self._keeper.cancel()

    async def try_to_open(self, group: asyncio.TaskGroup) -> None:
        """Start the server; a failure shows as missing tools."""
        try:
            await self.open(group)
        except DeputyError:
            return

    async def open(self, group: asyncio.TaskGroup) -> Client:
        """The connection; the first caller opens it."""
        self._group = group
        if self._client is None:
            if self._failures >= MOST_FAILURES:
                raise _ServerFailed(
                    f"The MCP server {self.name!r} failed {MOST_FAILURES} times; it is not started again."
                )
            self._client = asyncio.get_running_loop().create_future()
            self._done = asyncio.Event()
            self._keeper = group.create_task(self._keep(self._client, self._done))
        return await asyncio.shield(self._client)

    async def call(self, tool: McpTool, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Call a tool within the server's timeout; returns the text and whether it is an error."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, HEADER_MISMATCH

        if self._group is None:
            raise _ServerFailed(f"The MCP server {self.name!r} is not running.")
        client = await self.open(self._group)
        self._check(tool)
        try:
            async with asyncio.timeout(self.server.timeout_seconds):
                result = await _answer(client, tool.known_as, arguments)
        except TimeoutError:
            self._timeouts += 1
            if self._timeouts >= MOST_FAILURES:
                # The server seems to hang: the next call opens a new connection.
                self._forget()
            seconds = self.server.timeout_seconds
            raise _ServerFailed(f"The MCP server {self.name!r} did not answer within {seconds:g} s.") from None
        except MCPError as error:
            if error.error.code in (CONNECTION_CLOSED, HEADER_MISMATCH):
                # It exited or changed its tools: the next call opens a new connection and lists the tools.
                self._forget()
            quoted = one_line(str(error)[:_MOST_WORDS])
            raise _ServerFailed(f"The MCP server {self.name!r} failed.", quoted) from error
        except Exception as error:
            # Any exception here comes from the server's answer.
            raise _ServerFailed(f"The MCP server {self.name!r} sent an invalid answer.", _reason(error)) from error
        self._timeouts = 0
        return result

    def _check(self, tool: McpTool) -> None:
        """Refuse a tool that is gone, or no longer read-only, since the server restarted."""
        now = self.tools.get(tool.name)
        if now is None or (tool.traits.reads_only and not now.traits.reads_only):
            raise _ServerFailed(f"The MCP server {self.name!r} removed or changed {tool.name!r}; nothing was done.")

    def _forget(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._done.set()
        self._client = None
        self._timeouts = 0

    def meant_by(self, name: str) -> dict[str, bool]:
        """The tools of a name, and whether each is read-only."""
        if name in (f"{PREFIX}{self.name}", f"{PREFIX}{self.name}__*"):
            return {tool.name: True for tool in self.tools.values() if tool.traits.reads_only}
        if name not in self.tools:
            known = ", ".join(self.tools) or "none"
            raise UsageError("tools", name, f"the server has no such tool; its tools: {known[:500]}")
        return {name: self.tools[name].traits.reads_only}

    async def _keep(self, opened: asyncio.Future[Client], done: asyncio.Event) -> None:
        """Hold the connection open until it is closed or breaks."""
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(START_SECONDS):
                    client = await stack.enter_async_context(await _client_of(self.server, stack))
                    self.tools = self._offered(await _listed(client))
                self._failures = 0
                opened.set_result(client)
                await done.wait()
        except Exception as error:  # noqa: BLE001  a failing server must not stop the others
            self._failures += 1
            if not opened.done():
                _refuse(opened, _ServerFailed(f"The MCP server {self.name!r} did not start.", _reason(error)))
        finally:
            if self._client is opened:
                self._client = None

    def _offered(self, listed: list[Listed]) -> dict[str, McpTool]:
        """The tools to offer: configured by the user, with a valid name and a schema within the limits."""
        offered: dict[str, McpTool] = {}
        left = _MOST_SCHEMAS
        for tool in listed:
            name = f"{PREFIX}{self.name}__{safe_name(tool.name, '_')}"
            is_wanted = self.server.tools is None or tool.name in self.server.tools
            size = len(json.encode(tool.input_schema))
            if is_wanted and name not in offered and len(name) <= _LONGEST_NAME and size <= min(left, _MOST_SCHEMA):
                offered[name] = McpTool(self, tool, name)
                left -= size
        return offered


def _refuse(opened: asyncio.Future[Client], error: _ServerFailed) -> None:
    opened.set_exception(error)
    # Mark it as retrieved: there may be no waiter.
    opened.exception()


async def _listed(client: Client) -> list[Listed]:
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
        from deputy.tools.mcp_transports import program_streams

        return Client(program_streams(server.command, server.args, server.env), cache=None)
    from mcp.client.streamable_http import streamable_http_client

    from deputy.tools.mcp_transports import http_client

    http = await stack.enter_async_context(
        http_client(server.headers, connect_seconds=START_SECONDS, read_seconds=server.timeout_seconds)
    )
    return Client(streamable_http_client(server.url or "", http_client=http), cache=None)


async def _answer(client: Client, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    """Call a tool; returns the text of the answer and whether it is an error."""
    from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

    # Not `client.call_tool`: it validates with the server's regular expressions, and some never end.
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


def _reason(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return _reason(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return one_line(f"{type(error).__name__}: {error}"[:300])
