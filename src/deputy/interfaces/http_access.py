"""Who may use an HTTP server of this machine: checks of host, origin and token; the token; the socket."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import contextmanager
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

from deputy.core.errors import UsageError
from deputy.journal.home import make_home, write_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Sequence
    from pathlib import Path

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names of this machine that only this machine reaches."""
_LEAST_TOKEN = 16
_TOKEN_BYTES = 32


class Refusal(NamedTuple):
    """Why a request is refused, as an HTTP status and a sentence."""

    status: int
    message: str


class AccessCheck:
    """Checks host, origin and token of a request before its body is read.

    Against DNS rebinding: a web page can make a browser send requests to this machine under a foreign host name.
    With `ports` a host must name one of them, and an origin must be that of the host itself.
    """

    def __init__(
        self, *, token: str, names: Collection[str] = LOOPBACK, ports: Collection[int] = (), scheme: str = "http"
    ) -> None:
        self._token = token.encode()
        self._names = frozenset(name.lower() for name in names)
        self._ports = frozenset(map(str, ports))
        self._scheme = scheme

    def refuse_address(self, hosts: Sequence[str], origins: Sequence[str]) -> Refusal | None:
        """Refuse a request for another host, or from another origin."""
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return Refusal(421, "This server does not serve that host name.")
        if any(not self._is_our_origin(origin, hosts[0]) for origin in origins):
            return Refusal(403, "Requests from that origin are refused.")
        return None

    def refuse_token(self, tokens: Sequence[str]) -> Refusal | None:
        """Refuse a request without the token."""
        if len(tokens) != 1 or not self._is_token(tokens[0]):
            return Refusal(401, "A token is needed, in the header Authorization, after the word Bearer.")
        return None

    def _is_ours(self, host: str) -> bool:
        """Whether a host, with or without a port, is served here."""
        name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if not colon:
            name, port = name or port, ""
        if name.lower() not in self._names or (colon and not (port.isascii() and port.isdigit())):
            return False
        # A host name of a proxy in front may have no port; this machine's own names need theirs.
        return not self._ports or port in self._ports or (not colon and name.lower() not in LOOPBACK)

    def _is_our_origin(self, origin: str, host: str) -> bool:
        scheme, marks, name = origin.partition("://")
        if self._ports:
            return bool(marks) and scheme == self._scheme and name.lower() == host.lower()
        return bool(marks) and scheme in ("http", "https") and self._is_ours(name)

    def _is_token(self, given: str) -> bool:
        kind, _, token = given.partition(" ")
        return kind.lower() == "bearer" and compare_digest(token.strip().encode(), self._token)


def find_token(folder: Path, file: str, variable: str = "", *, is_new: bool = False) -> tuple[str, str]:
    """The token that clients must send, and where to find it; created if it is missing, or `is_new`."""
    given = os.environ.get(variable) if variable else None
    if given is not None:
        return _checked(given, variable), variable
    path = make_home(folder) / file
    try:
        if not is_new:
            return _checked(path.read_text("ascii").strip(), str(path)), str(path)
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "token", str(path), "the file cannot be read; remove it, and a new token is created"
        ) from error
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    write_whole(path, f"{token}\n".encode())
    return token, str(path)


def _checked(token: str, source: str) -> str:
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("token", source, f"give at least {_LEAST_TOKEN} printable characters without spaces")
    return token


@contextmanager
def listening(host: str, port: int, option: str) -> Generator[socket.socket]:
    """A socket that listens; `option` is the one that names the port."""
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
                option, port, f"cannot listen there: {error.strerror or error}; give another port, or 0 for any"
            ) from error
        yield sock


def shown_address(sock: socket.socket) -> str:
    """The address of a socket as a URL has it: `127.0.0.1:8711`."""
    address, port = sock.getsockname()[:2]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
