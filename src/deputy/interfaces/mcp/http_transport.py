"""Serve MCP over Streamable HTTP on this machine, to clients with the token."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from contextlib import contextmanager, suppress
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, cast

import h11
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import ClientDisconnect

from deputy.core.errors import UsageError
from deputy.interfaces.background import background
from deputy.interfaces.http_bounds import BODY_BYTES, BoundedListener, HttpBounds, bounded_log
from deputy.journal.home import home_path, make_home, write_whole

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Generator

    from mcp.server import Server
    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import H11Protocol

    from deputy.interfaces.mcp.server_state import ServerState

PATH = "/mcp"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
TOKEN_VARIABLE = "DEPUTY_MCP_TOKEN"  # noqa: S105  the name of a variable, and not a token
TOKEN_FILE = "mcp-token"  # noqa: S105  the name of a file, and not a token
MOST_SESSIONS = 1000
_LEAST_TOKEN = 16
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
    token, source = find_token(server_state)
    app = http_app(server, token=token, names=LOOPBACK | frozenset(names))
    logging.getLogger("mcp.server.streamable_http").addFilter(_is_reported)
    with bounded_log(), _listening(host, port) as sock:
        address, bound = sock.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        announce(f"http://{shown}:{bound}{PATH}", source)
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


@contextmanager
def _listening(host: str, port: int) -> Generator[socket.socket]:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(
            "--host", host, f"cannot listen there: {error.strerror or error}; give an address of this machine"
        ) from error
    with sock:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            # Listen before the address is announced: early clients wait instead of failing.
            sock.listen()
        except OSError as error:
            raise UsageError(
                "--http", port, f"cannot listen there: {error.strerror or error}; give another port, or 0 for any"
            ) from error
        yield sock


def find_token(server_state: ServerState) -> tuple[str, str]:
    """The token that clients must send, and where to find it; created if missing."""
    given = os.environ.get(TOKEN_VARIABLE)
    if given is not None:
        return _checked(given, TOKEN_VARIABLE), TOKEN_VARIABLE
    path = make_home(home_path() if server_state.options.home is None else server_state.options.home) / TOKEN_FILE
    try:
        return _checked(path.read_text("ascii").strip(), str(path)), str(path)
    except FileNotFoundError:
        token = secrets.token_urlsafe(32)
        write_whole(path, f"{token}\n".encode())
        return token, str(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "token", str(path), "the file cannot be read; remove it, and a new token is created"
        ) from error


def _checked(token: str, source: str) -> str:
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("token", source, f"give at least {_LEAST_TOKEN} printable characters without spaces")
    return token


# --- access control ---------------------------------------------------------------------------------------------------


class RequestGuard:
    """Checks host, origin and token of every request before its body is read.

    Against DNS rebinding: a web page can make a browser send requests to this machine under a foreign host name.
    """

    def __init__(self, app: ASGIApp, *, token: str, names: Collection[str] = LOOPBACK) -> None:
        self._app = app
        self._token = token.encode()
        self._names = frozenset(name.lower() for name in names)

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

    def _refusal(self, headers: Collection[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        hosts = _values(headers, b"host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return 421, "This server does not serve that host name."
        origins = _values(headers, b"origin")
        if any(not self._is_our_origin(origin) for origin in origins):
            return 403, "Requests from that origin are refused."
        tokens = _values(headers, b"authorization")
        if len(tokens) != 1 or not self._is_token(tokens[0]):
            return 401, "A token is needed: Authorization: Bearer TOKEN."
        return None

    def _is_ours(self, host: str) -> bool:
        """Whether a host, with or without a port, is served here."""
        name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if not colon:
            return (name or port).lower() in self._names
        return name.lower() in self._names and port.isascii() and port.isdigit()

    def _is_our_origin(self, origin: str) -> bool:
        scheme, marks, host = origin.partition("://")
        return bool(marks) and scheme in ("http", "https") and self._is_ours(host)

    def _is_token(self, given: str) -> bool:
        kind, _, token = given.partition(" ")
        return kind.lower() == "bearer" and compare_digest(token.strip().encode(), self._token)


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
