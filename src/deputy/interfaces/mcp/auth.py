"""Access control of the HTTP server: host name, origin and token of every request."""

from __future__ import annotations

from contextlib import suppress
from hmac import compare_digest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


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
        from starlette.requests import ClientDisconnect

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
