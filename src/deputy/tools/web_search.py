"""WebSearch: results of the configured search engine, which is Brave, Tavily or SearXNG."""

from __future__ import annotations

import asyncio
import html
import re
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from deputy.engine.ports import ToolOutput
from deputy.tools.struct_tool import Arguments, StructTool, traits_of
from deputy.tools.tool_text import ToolError, cut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.engine.ports import ToolContext

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
NOT_SET_UP = (
    "No search engine is configured, so nothing was searched. A person can set BRAVE_API_KEY or TAVILY_API_KEY,"
    " or SEARXNG_URL to the address of a SearXNG server. WebFetch works without one."
)
_TEXT_CHARACTERS = 1000


class _WebSearchArguments(Arguments, frozen=True):
    query: Annotated[str, Meta(min_length=1, max_length=400, description="What to search for.")]
    count: Annotated[int, Meta(ge=1, le=20, description="The most results to show.")] = 8


def web_search_tool(provider: SearchProvider | None) -> StructTool[_WebSearchArguments]:
    """Make the tool WebSearch; without a provider models do not get it, and a call says what to configure."""

    async def execute(arguments: _WebSearchArguments, context: ToolContext) -> ToolOutput:
        if provider is None:
            raise ToolError(NOT_SET_UP)
        hits = await provider.search(arguments.query, arguments.count)
        listed = "\n\n".join(_listed(number, hit) for number, hit in enumerate(hits[: arguments.count], 1))
        return ToolOutput(text=cut(listed, context.output_bytes) or "No results.")

    traits = structs.replace(traits_of("WebSearch", "low", 30), is_offered=provider is not None)
    return StructTool("WebSearch", _WebSearchArguments, traits, execute)


def _listed(number: int, hit: SearchResult) -> str:
    return f"{number}. {hit.title:.300}\n   {hit.url:.2000}\n   {hit.text[:_TEXT_CHARACTERS]}".rstrip()


class SearchResult(Struct, frozen=True, kw_only=True):
    """One result of a search."""

    title: str = ""
    url: str = ""
    text: str = ""


SearchProvider: TypeAlias = "Brave | Tavily | SearXNG"


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
        self._headers = {"X-Subscription-Token": key}
        self._url = f"{address.rstrip('/')}/res/v1/web/search"

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """Search the web index."""
        params = {"q": query, "count": str(min(count, 20))}
        return await _ask(self.name, "GET", self._url, headers=self._headers, params=params)


class Tavily:
    """Tavily."""

    name = "Tavily"

    def __init__(self, key: str, address: str = "https://api.tavily.com") -> None:
        self._headers = {"Authorization": f"Bearer {key}"}
        self._url = f"{address.rstrip('/')}/search"

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """Do a basic search."""
        body = {"query": query, "max_results": min(count, 20), "search_depth": "basic"}
        return await _ask(self.name, "POST", self._url, headers=self._headers, json=body)


class SearXNG:
    """A SearXNG server; the user configures its address, so it may be in a private network."""

    name = "SearXNG"

    def __init__(self, address: str) -> None:
        self._url = f"{address.rstrip('/')}/search"

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """Search with the format JSON, which the server must allow."""
        return (await _ask(self.name, "GET", self._url, params={"q": query, "format": "json"}))[:count]


class _Hit(Struct, frozen=True):
    title: str | None = ""
    url: str = ""
    content: str | None = ""
    description: str | None = ""
    """Brave's name of the content."""


class _Hits(Struct, frozen=True):
    results: list[_Hit] = []


class _Answer(_Hits, frozen=True):
    web: _Hits = _Hits()
    """Where Brave has the results."""


async def _ask(
    provider: str, method: str, url: str, *, headers: dict[str, str] | None = None, **request: Any
) -> list[SearchResult]:
    """Send one request and decode the answer; errors never contain the key."""
    import aiohttp

    from deputy.tools.web import read_body

    asked_for = {"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})}
    try:
        async with (
            asyncio.timeout(_SECONDS),
            aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)) as session,
            session.request(method, url, allow_redirects=False, headers=asked_for, **request) as response,
        ):
            if response.status != 200:
                raise ToolError(f"{provider} answered {response.status}: {_advice(provider, response.status)}.")
            body, is_cut = await read_body(response, _LIMIT_BYTES)
    except TimeoutError as error:
        raise ToolError(
            f"{provider} did not answer within {_SECONDS} s; search again, or report without it."
        ) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ToolError(
            f"{provider} could not be reached ({type(error).__name__}); search again, or report without it."
        ) from error
    try:
        answer = msgspec.json.decode(b"" if is_cut else body, type=_Answer)
    except msgspec.ValidationError as error:
        raise ToolError(f"{provider} answered in an unknown form.", str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ToolError(f"The answer of {provider} is not JSON.") from error
    return [
        SearchResult(title=_plain(hit.title or ""), url=hit.url, text=_plain(hit.content or hit.description or ""))
        for hit in answer.results or answer.web.results
    ]


def _advice(provider: str, status: int) -> str:
    if provider == SearXNG.name and status == 403:
        return "its settings must allow the format json (search.formats)"
    return _REMEDY.get(status, "try again later")


def _plain(text: str) -> str:
    """A title or excerpt without markup, on one line."""
    return " ".join(html.unescape(re.sub(r"</?[a-z]{1,10}>", "", text)).split())
