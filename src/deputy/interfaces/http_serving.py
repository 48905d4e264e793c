"""Serve an aiohttp application on a socket, within the bounds of every HTTP server of ours."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web

from deputy.interfaces.background import background
from deputy.interfaces.http_bounds import BoundedListener, HttpBounds, connection_limit

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import AsyncGenerator

MOST_CONNECTIONS = 256
_SHUTDOWN_SECONDS = 1.0


@asynccontextmanager
async def accepting(app: web.Application, sock: socket.socket) -> AsyncGenerator[None]:
    """Accept connections until the block ends."""
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS, handle_signals=False
    )
    await runner.setup()
    assert runner.server is not None  # noqa: S101  it is set up
    bounds = HttpBounds(connections=min(MOST_CONNECTIONS, connection_limit()))
    listener = BoundedListener(sock, cast("Any", runner.server), _waits_for_head, bounds)
    try:
        async with background(listener.accept()):
            yield
    finally:
        await runner.cleanup()


def _waits_for_head(protocol: asyncio.Protocol) -> bool:
    handler = cast("Any", protocol)
    return handler._current_request is None and not handler._messages
