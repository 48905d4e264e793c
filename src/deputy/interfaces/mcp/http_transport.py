"""Serve MCP over Streamable HTTP on this machine, to clients with the token."""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import h11
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import ClientDisconnect

from deputy.interfaces.background import background
from deputy.interfaces.http_access import LOOPBACK, AccessCheck, find_token, listening, shown_address
from deputy.interfaces.http_bounds import BODY_BYTES, BoundedListener, HttpBounds, bounded_log
from deputy.journal.home import home_path

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Collection, Generator

    from mcp.server import Server
    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import H11Protocol

    from deputy.interfaces.http_access import Refusal
    from deputy.interfaces.mcp.server_state import ServerState

PATH = "/mcp"
TOKEN_VARIABLE = "DEPUTY_MCP_TOKEN"  # noqa: S105  the name of a variable, and not a token
TOKEN_FILE = "mcp-token"  # noqa: S105  the name of a file, and not a token
MOST_SESSIONS = 1000
_SHUTDOWN_SECONDS = 2


def http_app(server: Server[Any], *, token: str, names: Collection[str] = LOOPBACK) -> RequestGuard:
    """The ASGI application that serves MCP at /mcp to clients with the token."""
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=BODY_BYTES,
        max_sessions=MOST_SESSIONS,
        # RequestGuard has checked the host name already.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return RequestGuard(app, token=token, names=names)


async def serve_http(
    server: Server[Any],
    server_state: ServerState,
    stop: asyncio.Event,
    *,
    host: str,
    port: int,
    names: Collection[str] = (),
    announce: Callable[[str, str], None],
) -> None:
    """Serve until `stop`; `announce` gets the address and where the token is found."""
    home = server_state.options.home
    token, source = find_token(home_path() if home is None else home, TOKEN_FILE, TOKEN_VARIABLE)
    app = http_app(server, token=token, names=LOOPBACK | frozenset(names))
    logging.getLogger("mcp.server.streamable_http").addFilter(_is_reported)
    with bounded_log(), listening(host, port, "--http") as sock:
        announce(f"http://{shown_address(sock)}{PATH}", source)
        config = uvicorn.Config(
            app,
            http="h11",
            log_config=None,
            log_level="error",
            access_log=False,
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        serving = _Serving(config, sock)

        async def stopped() -> None:
            await stop.wait()
            server_state.is_leaving = True
            serving.should_exit = True

        async with background(stopped()):
            # No sockets: the bounded listener accepts the connections.
            await serving.serve(sockets=[])


def _is_reported(text: logging.LogRecord) -> bool:
    """Whether a log record of the SDK is more than a disconnected client."""
    return text.exc_info is None or not isinstance(text.exc_info[1], ClientDisconnect)


class _Serving(uvicorn.Server):
    """A server without signal handlers, whose connections a bounded listener accepts."""

    def __init__(self, config: uvicorn.Config, sock: socket.socket) -> None:
        super().__init__(config)
        self._listener = BoundedListener(sock, self._protocol, _waits_for_head, HttpBounds())

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def main_loop(self) -> None:
        """Accept connections between the start of the application and its shutdown."""
        async with background(self._listener.accept()):
            await super().main_loop()

    def _protocol(self) -> asyncio.Protocol:
        make = cast("type[H11Protocol]", self.config.http_protocol_class)
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


def _waits_for_head(protocol: asyncio.Protocol) -> bool:
    return cast("H11Protocol", protocol).conn.their_state is h11.IDLE


# --- access control ---------------------------------------------------------------------------------------------------


class RequestGuard:
    """Checks host, origin and token of every request before its body is read."""

    def __init__(self, app: ASGIApp, *, token: str, names: Collection[str] = LOOPBACK) -> None:
        self._app = app
        self._access = AccessCheck(token=token, names=names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it with the reason."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            refusal = self._refusal(scope["headers"])
            if refusal is None:
                await self._passed_on(scope, receive, send)
            else:
                await _refuse(send, *refusal)

    async def _passed_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A client that disconnects in the middle of a request is no error of the server.
        with suppress(ClientDisconnect):
            await self._app(scope, receive, send)

    def _refusal(self, headers: Collection[tuple[bytes, bytes]]) -> Refusal | None:
        access = self._access
        return access.refuse_address(_values(headers, b"host"), _values(headers, b"origin")) or access.refuse_token(
            _values(headers, b"authorization")
        )


def _values(headers: Collection[tuple[bytes, bytes]], wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in headers if name == wanted]


async def _refuse(send: Send, status: int, words: str) -> None:
    body = words.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="deputy"'))
    # The body was not read, so the connection cannot be reused.
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
