"""The connection pool of a process: no redirects, no decompression, proxies from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import aiohttp

from deputy import __version__
from deputy.core.model_errors import BadReply, BadRequest, NetworkFailed

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Mapping

    from aiohttp.abc import AbstractStreamWriter
    from yarl import URL

    from deputy.core.model_errors import ModelError

CONNECT_SECONDS: Final = 30.0
PIECE_BYTES: Final = 256 * 1024
"""The size of one write; the transport copies unsent data."""


class RequestBody(aiohttp.Payload):
    """A request body that is freed once it is sent: answers may take long, and conversations are large."""

    _autoclose = True

    def __init__(self, content: bytes) -> None:
        super().__init__(content, content_type="application/json")
        self._size = len(content)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The unsent body as text."""
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the body."""
        content, self._value = self._value, b""
        for at in range(0, len(content), PIECE_BYTES):
            await writer.write(content[at : at + PIECE_BYTES])


class HttpClient:
    """A connection pool, opened by the first request."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[URL, str | None] = {}

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, url: URL, headers: Mapping[str, str], body: RequestBody) -> aiohttp.ClientResponse:
        """Send a request and wait for the response headers; a failure is a NetworkFailed."""
        try:
            return await self._opened().post(
                url,
                data=body,
                headers=headers,
                allow_redirects=False,
                proxy=self._proxy(url),
            )
        except (aiohttp.InvalidURL, aiohttp.ClientError, OSError) as error:
            raise _named(error, url) from error

    async def get(
        self, url: URL, headers: Mapping[str, str], limit_bytes: int, posted: object = None
    ) -> tuple[int, bytes]:
        """The status and body of an answer; a failure, or a body over the limit, is a ModelError.

        `posted` is sent as JSON.
        """
        method = "GET" if posted is None else "POST"
        asked = {"accept": "application/json", "accept-encoding": "identity", **headers}
        proxy = self._proxy(url)
        try:
            async with self._opened().request(
                method, url, headers=asked, json=posted, allow_redirects=False, proxy=proxy
            ) as response:
                body = bytearray()
                async for piece in response.content.iter_any():
                    body += piece
                    if len(body) > limit_bytes:
                        raise BadReply(f"the answer of {url.host} is over {limit_bytes:,} bytes")
                return response.status, bytes(body)
        except (aiohttp.InvalidURL, aiohttp.ClientError, OSError) as error:
            raise _named(error, url) from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                headers={"user-agent": f"deputy/{__version__}"},
            )
        return self._session

    def _proxy(self, url: URL) -> str | None:
        """The environment's proxy for a URL, cached; aiohttp's `trust_env` would also read passwords from netrc."""
        if url not in self._proxies:
            self._proxies[url] = proxy_for(f"{url.scheme}://{url.host}:{url.port}")
        return self._proxies[url]


async def read_what_came(content: aiohttp.StreamReader) -> bytes:
    """The next bytes of an answer, like `readany`; empty at its end.

    In a busy process many chunks wait. `readany` removes them one by one and calls the parser after each, a tenth of
    a turn's cost; so this takes all but the last at once.
    """
    buffer: deque[bytes] | None = getattr(content, "_buffer", None)
    if buffer is None or len(buffer) <= 1 or content._buffer_offset:  # pyright: ignore[reportPrivateUsage]
        return await content.readany()
    *first, last = buffer
    came = b"".join(first)
    content._size -= len(came)  # pyright: ignore[reportPrivateUsage]
    content._cursor += len(came)  # pyright: ignore[reportPrivateUsage]
    buffer.clear()
    buffer.append(last)
    return came + await content.readany()


def proxy_for(origin: str) -> str | None:
    """The environment's proxy for an address, unless its host is excluded."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(origin)
    proxies = getproxies()
    if proxy_bypass(parts.netloc):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")


def _named(error: Exception, url: URL) -> ModelError:
    """A failed request as an error that names the host."""
    match error:
        case aiohttp.InvalidURL():
            return BadRequest(f"the address {url!s} is invalid")
        case aiohttp.ClientConnectorCertificateError():
            return NetworkFailed(f"the certificate of {url.host} is not trusted", retryable=False)
        case aiohttp.ServerTimeoutError():
            return NetworkFailed(f"no connection to {url.host} within {CONNECT_SECONDS:.0f} s")
        case _:
            return NetworkFailed(f"no answer from {url.host}:{url.port}: {_reason(error)}")


def _reason(error: Exception) -> str:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno)
    return str(cause) or type(error).__name__
