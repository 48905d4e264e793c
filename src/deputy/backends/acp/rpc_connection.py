"""A JSON-RPC connection over a program's streams, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from deputy.backends.acp import jsonrpc

if TYPE_CHECKING:
    from deputy.backends.cli.program import Fields

Serve: TypeAlias = Callable[[jsonrpc.RpcRequest], Awaitable[bytes | None]]
"""Handles a request or notification; returns the answer to a request."""


class Connection:
    """A connection to one agent. Its requests are served one at a time, so a flood of them waits."""

    def __init__(self, stdin: asyncio.StreamWriter | None, serve: Serve) -> None:
        self._stdin = stdin
        self._serve = serve
        self._waiting: dict[int, asyncio.Future[jsonrpc.RpcResult | jsonrpc.RpcError | None]] = {}
        self._number = 0
        self._is_over = False

    async def ask(self, method: str, params: Fields) -> jsonrpc.RpcResult | jsonrpc.RpcError | None:
        """Send a request and wait for the answer; None when the connection has ended."""
        if self._is_over:
            return None
        self._number += 1
        number = self._number
        self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send(jsonrpc.request(number, method, params))
            return await self._waiting[number]
        finally:
            del self._waiting[number]

    def notify(self, method: str, params: Fields) -> None:
        """Send a notification without waiting."""
        if self._stdin is not None and not self._stdin.is_closing():
            with suppress(ConnectionError):
                self._stdin.write(jsonrpc.notification(method, params))

    async def receive(self, message: jsonrpc.Message) -> None:
        """Handle a message of the agent."""
        if isinstance(message, jsonrpc.RpcRequest):
            reply = await self._serve(message)
            if reply is not None:
                await self._send(reply)
        else:
            waiting = self._waiting.get(message.id)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

    def end(self) -> None:
        """Note the end of the agent's output; pending requests get no answer."""
        self._is_over = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)

    def hang_up(self) -> None:
        """Close the agent's input."""
        if self._stdin is not None:
            with suppress(ConnectionError):
                self._stdin.close()

    async def _send(self, line: bytes) -> None:
        if self._stdin is None or self._stdin.is_closing():
            return
        with suppress(ConnectionError):
            self._stdin.write(line)
            await self._stdin.drain()
