"""An MCP server that is an address: its answers within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from httpx2 import AsyncByteStream, AsyncClient, ReadError, Timeout

from deputy.tools.json_parts import MOST_PARTS, JsonParts

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
        # Not by a transport of our own: with one, the proxies of the environment are passed over.
        event_hooks={"response": [_bound]},
    )


async def _bound(response: Response) -> None:
    """Bound what is read of an answer; one that was packed unasked could be any size, and is not unpacked."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ReadError("the answer is packed, which was not asked for", request=response.request)
    if isinstance(response.stream, AsyncByteStream):
        response.stream = _Bytes(response.stream, response.request)


class _Bytes(AsyncByteStream):
    """The bytes of an answer, up to a bound."""

    def __init__(self, inner: AsyncByteStream, request: Request) -> None:
        self._inner = inner
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken, parts = 0, JsonParts()
        async for chunk in self._inner:
            taken += len(chunk)
            if taken > MOST_ANSWER:
                raise ReadError(f"the answer is larger than {MOST_ANSWER:,} bytes", request=self._request)
            if parts.count(chunk) > MOST_PARTS:
                # Not even in a thread: reading it would hold everybody up there as well.
                raise ReadError(f"the answer is made of more than {MOST_PARTS:,} values", request=self._request)
            yield chunk

    async def aclose(self) -> None:
        """Read no more of it."""
        await self._inner.aclose()
