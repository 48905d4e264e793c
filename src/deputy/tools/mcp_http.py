"""An MCP server that is an address: its answers within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from httpx2 import AsyncBaseTransport, AsyncByteStream, AsyncClient, AsyncHTTPTransport, ReadError, Timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from httpx2 import Request, Response

MOST_ANSWER: Final = 16 * 1024 * 1024
"""The most that is read of one answer."""


def http_client(headers: Mapping[str, str] | None, *, connect_seconds: float, read_seconds: float) -> AsyncClient:
    """A client whose answers cannot be larger than they say, or than is good."""
    return AsyncClient(
        headers={**(headers or {}), "Accept-Encoding": "identity"},
        timeout=Timeout(connect_seconds, read=read_seconds),
        transport=_Bounded(AsyncHTTPTransport()),
    )


class _Bounded(AsyncBaseTransport):
    """Passes requests on, and of each answer so much."""

    def __init__(self, inner: AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: Request) -> Response:
        """Send a request; an answer that was packed unasked could be any size, and is not unpacked."""
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise ReadError("the answer is packed, which was not asked for", request=request)
        if isinstance(response.stream, AsyncByteStream):
            response.stream = _Bytes(response.stream, request)
        return response

    async def aclose(self) -> None:
        """Close what is open."""
        await self._inner.aclose()


class _Bytes(AsyncByteStream):
    """The bytes of an answer, up to a bound."""

    def __init__(self, inner: AsyncByteStream, request: Request) -> None:
        self._inner = inner
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken = 0
        async for chunk in self._inner:
            taken += len(chunk)
            if taken > MOST_ANSWER:
                raise ReadError(f"the answer is larger than {MOST_ANSWER:,} bytes", request=self._request)
            yield chunk

    async def aclose(self) -> None:
        """Read no more of it."""
        await self._inner.aclose()
