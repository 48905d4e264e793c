"""Transports to MCP servers: a supervised program or HTTP, with limits on their output."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from httpx2 import AsyncByteStream, AsyncClient, ReadError, Timeout
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, jsonrpc_message_adapter

from deputy.core.errors import DeputyError
from deputy.processes.bounded_output import MOST_PARTS, JsonParts, LineReader, has_too_many_parts
from deputy.processes.supervise import Command, supervise

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from httpx2 import Request, Response

    from deputy.processes.supervise import SupervisedChild

MOST_LINE: Final = 8 * 1024 * 1024
"""The longest message in bytes."""
MOST_MESSAGES: Final = 5_000
"""The most messages from a server per request."""
_PIECE = 64 * 1024
_LEAVE_SECONDS = 2.0
"""Time for a server to exit by itself after its input is closed."""
MOST_ANSWER: Final = 16 * 1024 * 1024
"""The largest response in bytes."""


@asynccontextmanager
async def program_streams(
    command: str, args: Sequence[str], env: dict[str, str] | None
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Any], MemoryObjectSendStream[Any]]]:
    """Run a server for the duration of the block; after too much output its streams end as if it had exited."""
    environment = {**get_default_environment(), **(env or {})}
    found = shutil.which(command, path=environment.get("PATH"))
    if found is None:
        raise DeputyError(f"the program {command!r} was not found; install it or correct its name")
    program = Command(argv=(found, *args), cwd=str(Path.cwd()), environment=environment, owner="mcp")
    async with supervise(program) as child, asyncio.TaskGroup() as group:
        to_client, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, from_client = anyio.create_memory_object_stream[SessionMessage](0)
        streams = _McpStreams(child)
        tasks = [
            group.create_task(streams.read_all(to_client)),
            group.create_task(streams.write_all(from_client, to_client)),
            group.create_task(_drop(child.stderr)),
        ]
        # The tasks close their ends, but may be cancelled before they start.
        with to_client, from_client:
            try:
                yield incoming, outgoing
            finally:
                outgoing.close()
                incoming.close()
                await _let_go(child)
                for task in tasks:
                    task.cancel()


class _McpStreams:
    def __init__(self, child: SupervisedChild) -> None:
        self._child = child
        self._output = 0

    async def read_all(self, to_client: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Pass on its messages until it ends or sends too much; other lines are ignored."""
        lines = LineReader(MOST_LINE)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with to_client:
                while chunk := await self._child.stdout.read(_PIECE):
                    for line in lines.feed(chunk):
                        self._output += 1
                        if has_too_many_parts(line):
                            # Parsing holds the GIL, so a thread would not help.
                            self._output = MOST_MESSAGES + 1
                            break
                        with suppress(ValueError):
                            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                            await to_client.send(SessionMessage(message))
                    if lines.too_long or self._output > MOST_MESSAGES:
                        break
        await _drop(self._child.stdout)

    async def write_all(
        self,
        messages: MemoryObjectReceiveStream[SessionMessage],
        to_client: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        """Pass on the client's messages; a server that closed its input counts as exited."""
        stdin = self._child.stdin
        async with messages:
            try:
                async for one in messages:
                    if isinstance(one.message, JSONRPCRequest):
                        self._output = 0
                    if stdin is not None:
                        stdin.write(one.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                        await stdin.drain()
            except ConnectionError:
                await to_client.aclose()


async def _drop(stream: asyncio.StreamReader) -> None:
    """Read and discard, so that the writer never blocks."""
    while await stream.read(_PIECE):
        pass


async def _let_go(child: SupervisedChild) -> None:
    """Close the server's input, which asks it to exit, and wait a little."""
    if child.stdin is not None:
        child.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_LEAVE_SECONDS):
            await child.exited()


def http_client(headers: Mapping[str, str] | None, *, connect_seconds: float, read_seconds: float) -> AsyncClient:
    """A client that refuses compressed and too large responses."""
    return AsyncClient(
        headers={**(headers or {}), "Accept-Encoding": "identity"},
        timeout=Timeout(connect_seconds, read=read_seconds),
        # A hook, because a custom transport would ignore the proxies of the environment.
        event_hooks={"response": [_bound]},
    )


async def _bound(response: Response) -> None:
    """Limit a response; a compressed one was not requested and could unpack to any size."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ReadError("the response is compressed, which was not requested", request=response.request)
    if isinstance(response.stream, AsyncByteStream):
        response.stream = _Bytes(response.stream, response.request)


class _Bytes(AsyncByteStream):
    def __init__(self, inner: AsyncByteStream, request: Request) -> None:
        self._inner = inner
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken, parts = 0, JsonParts()
        async for chunk in self._inner:
            taken += len(chunk)
            if taken > MOST_ANSWER:
                raise ReadError(f"the response is larger than {MOST_ANSWER:,} bytes", request=self._request)
            if parts.count(chunk) > MOST_PARTS:
                # Parsing holds the GIL, so a thread would not help.
                raise ReadError(f"the response has more than {MOST_PARTS:,} values", request=self._request)
            yield chunk

    async def aclose(self) -> None:
        """Close the response."""
        await self._inner.aclose()
