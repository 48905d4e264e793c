"""HTTP client for MCP servers, with limits on their responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from httpx2 import AsyncByteStream, AsyncClient, ReadError, Timeout

from deputy.tools.json_parts import MOST_PARTS, JsonParts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from httpx2 import Request, Response

MOST_ANSWER: Final = 16 * 1024 * 1024
"""The largest response in bytes."""


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
    """The bytes of a response, up to the limits."""

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
