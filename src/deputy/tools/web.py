"""HTTP GET on the public web: every address and redirect is checked, the size is limited, also after decompression."""

from __future__ import annotations

import asyncio
import socket
import ssl
import zlib
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct
from yarl import URL

from deputy import __version__
from deputy.tools.tool_text import ToolError
from deputy.tools.urls import check_url, why_not_public

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from ipaddress import IPv4Network, IPv6Network

_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHUNK = 65_536
_HEADERS = {
    "User-Agent": f"deputy/{__version__}",
    "Accept": "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.1",
    # A server may compress nevertheless; `read_body` limits that.
    "Accept-Encoding": "identity",
}


class WebResponse(Struct, frozen=True, kw_only=True):
    """The response after all redirects."""

    url: str
    status: int
    content_type: str
    body: bytes
    is_cut: bool
    length: int | None
    """The value of Content-Length."""


class Web:
    """The public web; tests allow other networks. Proxies of the environment are not used."""

    def __init__(
        self,
        *,
        resolve: Callable[[str], Awaitable[Sequence[str]]] | None = None,
        allowed: Sequence[IPv4Network | IPv6Network] = (),
    ) -> None:
        self._resolve = resolve or _resolve
        self._allowed = tuple(allowed)

    async def get(self, text: str, *, seconds: float, limit_bytes: int) -> WebResponse:
        """Fetch a URL with a few redirects; `seconds` is the limit for all of it."""
        try:
            async with asyncio.timeout(seconds), self._session() as session:
                return await self._follow(session, text, limit_bytes)
        except TimeoutError as error:
            raise ToolError(f"{text!r:.200} did not answer within {seconds:g} s; try another page.") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _not_fetched(text, error) from error

    def _session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            resolver=_CheckedResolver(self._resolve, self._allowed),
            socket_factory=self._open_socket,
            use_dns_cache=False,
            force_close=True,
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers=_HEADERS,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            trust_env=False,
        )

    def _open_socket(self, info: tuple[int, int, int, str, tuple[Any, ...]]) -> socket.socket:
        """Check the address once more, at connect time."""
        family, kind, protocol, _, address = info
        _expect_public(str(address[0]), self._allowed)
        return socket.socket(family, kind, protocol)

    async def _follow(self, session: aiohttp.ClientSession, text: str, limit_bytes: int) -> WebResponse:
        url = check_url(text, self._allowed)
        for _ in range(_MOST_REDIRECTS + 1):
            async with session.get(url, allow_redirects=False) as response:
                location = response.headers.get("Location")
                if response.status not in _REDIRECTS or location is None:
                    body, is_cut = await read_body(response, limit_bytes)
                    return WebResponse(
                        url=str(response.url),
                        status=response.status,
                        content_type=response.headers.get("Content-Type", ""),
                        body=body,
                        is_cut=is_cut,
                        length=response.content_length,
                    )
            url = self._next(url, location)
        raise ToolError(f"{text!r:.200} was redirected more than {_MOST_REDIRECTS} times; try another page.")

    def _next(self, url: URL, location: str) -> URL:
        try:
            target = check_url(str(url.join(URL(location))), self._allowed)
        except ToolError as error:
            raise ToolError("A redirect was not followed; try another page.", str(error)) from error
        if url.scheme == "https" and target.scheme == "http":
            raise ToolError(
                "A redirect from https to http was not followed; try another page.", f"{str(target)!r:.200}"
            )
        return target


async def read_body(response: aiohttp.ClientResponse, limit_bytes: int) -> tuple[bytes, bool]:
    """The body up to a limit after decompression, and whether there was more."""
    unpack = _unpacker(response.headers.get("Content-Encoding", ""))
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += unpack(chunk, limit_bytes + 1 - len(body))
        if len(body) > limit_bytes:
            return bytes(body[:limit_bytes]), True
    return bytes(body), False


class _CheckedResolver(AbstractResolver):
    """Resolves a host only when all of its addresses are public."""

    def __init__(
        self, resolve: Callable[[str], Awaitable[Sequence[str]]], allowed: Sequence[IPv4Network | IPv6Network]
    ) -> None:
        self._resolve = resolve
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = await self._resolve(host)
        for address in addresses:
            _expect_public(address, self._allowed)
        if not addresses:
            raise OSError("the host has no address")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is open."""


class _NotPublicError(OSError):
    """The address is not on the public internet."""


def _expect_public(address: str, allowed: Sequence[IPv4Network | IPv6Network]) -> None:
    reason = why_not_public(address, allowed)
    if reason is not None:
        raise _NotPublicError(f"its address {address} is not on the public internet ({reason})")


async def _resolve(host: str) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _unpacker(encoding: str) -> Callable[[bytes, int], bytes]:
    match encoding.strip().lower():
        case "" | "identity":
            return lambda data, _: data
        case "gzip" | "x-gzip":
            return _inflate(31)
        case "deflate":
            return _inflate(None)
        case other:
            raise ToolError("The server sent an encoding that was not requested and is not decoded.", f"{other!r:.80}")


def _inflate(window_bits: int | None) -> Callable[[bytes, int], bytes]:
    inflater = None if window_bits is None else zlib.decompressobj(window_bits)

    def inflate(data: bytes, most: int) -> bytes:
        nonlocal inflater
        if inflater is None:
            # Some servers send deflate without the zlib header of the standard.
            has_header = len(data) > 1 and data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
            inflater = zlib.decompressobj(15 if has_header else -15)
        try:
            return inflater.decompress(data, max(1, most))
        except zlib.error as error:
            raise ToolError("The server's answer is damaged: it could not be decompressed.") from error

    return inflate


def _not_fetched(text: str, error: Exception) -> ToolError:
    """The error of a URL that could not be fetched; what is not of this machine may quote the server."""
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    reason = f"{str(inner) or type(inner).__name__:.300}"
    # A certificate error names the host, which a redirect may choose.
    is_ours = isinstance(inner, OSError) and not isinstance(inner, (aiohttp.ClientError, ssl.SSLError))
    if is_ours:
        return ToolError(f"{text!r:.200} could not be fetched: {reason}.")
    return ToolError(f"{text!r:.200} could not be fetched.", reason)
