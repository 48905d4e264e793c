"""Clients of the search engines for WebSearch: Brave, Tavily and SearXNG."""

from __future__ import annotations

import asyncio
import html
import re
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from deputy.tools.tool_error import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

_Answer = TypeVar("_Answer")

SEARCH_KEYS = ("BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY", "TAVILY_API_KEY")
"""Environment variables with the key of a search engine."""
_SECONDS = 20
_LIMIT_BYTES = 4 * 1024 * 1024
_REMEDY = {
    400: "the query was not understood",
    401: "the key was refused",
    402: "the plan is used up",
    403: "access was refused",
    422: "the query or the key was refused",
    429: "too many requests; wait before you search again",
    432: "the plan is used up",
}


class SearchResult(Struct, frozen=True, kw_only=True):
    """One result of a search."""

    title: str = ""
    url: str = ""
    text: str = ""


class SearchProvider(Protocol):
    """A search engine."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """The best results, at most `count`."""
        ...


def choose_provider(environment: Mapping[str, str]) -> SearchProvider | None:
    """The first of Brave, Tavily and SearXNG whose key or address is set."""
    if key := environment.get("BRAVE_API_KEY") or environment.get("BRAVE_SEARCH_API_KEY"):
        return Brave(key)
    if key := environment.get("TAVILY_API_KEY"):
        return Tavily(key)
    if address := environment.get("SEARXNG_URL"):
        return SearXNG(address)
    return None


class Brave:
    """Brave Search."""

    name = "Brave"

    def __init__(self, key: str, address: str = "https://api.search.brave.com") -> None:
        self._key = key
        self._address = address.rstrip("/")

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """Search the web index."""
        answer = await _ask(
            _BraveAnswer,
            self.name,
            "GET",
            f"{self._address}/res/v1/web/search",
            headers={"X-Subscription-Token": self._key},
            params={"q": query, "count": str(min(count, 20))},
        )
        results = answer.web.results
        return [SearchResult(title=_plain(hit.title), url=hit.url, text=_plain(hit.description)) for hit in results]


class Tavily:
    """Tavily."""

    name = "Tavily"

    def __init__(self, key: str, address: str = "https://api.tavily.com") -> None:
        self._key = key
        self._address = address.rstrip("/")

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """Do a basic search."""
        answer = await _ask(
            _Results,
            self.name,
            "POST",
            f"{self._address}/search",
            headers={"Authorization": f"Bearer {self._key}"},
            json={"query": query, "max_results": min(count, 20), "search_depth": "basic"},
        )
        return _hits(answer)


class SearXNG:
    """A SearXNG server; the user configures its address, so it may be in a private network."""

    name = "SearXNG"

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """Search with the format JSON, which the server must allow."""
        params = {"q": query, "format": "json"}
        return _hits(await _ask(_Results, self.name, "GET", f"{self._address}/search", params=params))[:count]


class _Result(Struct, frozen=True):
    title: str | None = ""
    url: str = ""
    content: str | None = ""


class _Results(Struct, frozen=True):
    results: list[_Result] = []


class _BraveResult(Struct, frozen=True):
    title: str = ""
    url: str = ""
    description: str = ""


class _BraveWeb(Struct, frozen=True):
    results: list[_BraveResult] = []


class _BraveAnswer(Struct, frozen=True):
    web: _BraveWeb = _BraveWeb()


def _hits(answer: _Results) -> list[SearchResult]:
    return [
        SearchResult(title=_plain(hit.title or ""), url=hit.url, text=_plain(hit.content or ""))
        for hit in answer.results
    ]


async def _ask(wanted: type[_Answer], provider: str, method: str, url: str, **request: Any) -> _Answer:
    """Send one request and decode the answer; errors never contain the key."""
    import aiohttp

    from deputy.tools.web import read_body

    try:
        async with (
            asyncio.timeout(_SECONDS),
            aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)) as session,
            session.request(method, url, allow_redirects=False, **_with_headers(request)) as response,
        ):
            if response.status != 200:
                raise ToolError(f"{provider} answered {response.status}: {_advice(provider, response.status)}.")
            body, is_cut = await read_body(response, _LIMIT_BYTES)
    except TimeoutError as error:
        raise ToolError(f"{provider} did not answer within {_SECONDS} s.") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ToolError(f"{provider} could not be reached: {type(error).__name__}.") from error
    try:
        return msgspec.json.decode(b"" if is_cut else body, type=wanted)
    except msgspec.ValidationError as error:
        raise ToolError(f"{provider} answered in an unknown form: {error}.") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ToolError(f"The answer of {provider} is not JSON.") from error


def _with_headers(request: Any) -> Any:
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    return {**request, "headers": {**headers, **request.get("headers", {})}}


def _advice(provider: str, status: int) -> str:
    if provider == SearXNG.name and status == 403:
        return "its settings must allow the format json (search.formats)"
    return _REMEDY.get(status, "try again later")


def _plain(text: str) -> str:
    """A title or excerpt without markup, on one line."""
    return " ".join(html.unescape(re.sub(r"</?[a-z]{1,10}>", "", text)).split())
