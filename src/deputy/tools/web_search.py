"""WebSearch: results of the configured search engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from deputy.engine.ports import ToolOutput, ToolTraits
from deputy.tools.struct_tool import StructTool
from deputy.tools.tool_error import ToolError
from deputy.tools.truncate import cut

if TYPE_CHECKING:
    from deputy.engine.ports import ToolContext
    from deputy.tools.search_providers import SearchProvider, SearchResult

NOT_SET_UP = (
    "No search engine is configured, so nothing was searched. A person can set BRAVE_API_KEY or TAVILY_API_KEY,"
    " or SEARXNG_URL to the address of a SearXNG server. WebFetch works without one."
)
_TEXT_CHARACTERS = 1000


class WebSearchArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of WebSearch."""

    query: Annotated[str, Meta(min_length=1, max_length=400, description="What to search for.")]
    count: Annotated[int, Meta(ge=1, le=20, description="The most results to show.")] = 8


def web_search_tool(provider: SearchProvider | None) -> StructTool[WebSearchArguments]:
    """Make the tool WebSearch; without a provider it fails and says what to configure."""
    traits = ToolTraits(reads_only=True, repeatable=True, needs_approval=False, risk="low", limit_seconds=30)

    async def execute(arguments: WebSearchArguments, context: ToolContext) -> ToolOutput:
        if provider is None:
            raise ToolError(NOT_SET_UP)
        hits = await provider.search(arguments.query, arguments.count)
        listed = "\n\n".join(_listed(number, hit) for number, hit in enumerate(hits[: arguments.count], 1))
        return ToolOutput(text=cut(listed, context.output_bytes) or "No results.")

    return StructTool("WebSearch", WebSearchArguments, traits, execute, description_file="web_search.md")


def _listed(number: int, hit: SearchResult) -> str:
    return f"{number}. {hit.title:.300}\n   {hit.url:.2000}\n   {hit.text[:_TEXT_CHARACTERS]}".rstrip()
