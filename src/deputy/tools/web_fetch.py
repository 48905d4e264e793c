"""WebFetch: a web page as text."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from deputy.engine.ports import ToolOutput, ToolTraits
from deputy.tools.struct_tool import StructTool
from deputy.tools.truncate import beginning

if TYPE_CHECKING:
    from deputy.engine.ports import ToolContext
    from deputy.tools.interruptible import Slots
    from deputy.tools.web import Web, WebResponse

_LIMIT_BYTES = 4 * 1024 * 1024
_SECONDS = 30


class WebFetchArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of WebFetch."""

    url: Annotated[str, Meta(min_length=1, max_length=4096, description="An http or https URL.")]
    offset: Annotated[int, Meta(ge=0, le=10**8, description="The first character to show.")] = 0


def web_fetch_tool(
    web: Web | None = None, slots: Slots | None = None, *, seconds: float = _SECONDS
) -> StructTool[WebFetchArguments]:
    """Make the tool WebFetch; shared slots limit the pages that are converted at once."""
    traits = ToolTraits(
        reads_only=True, repeatable=True, needs_approval=False, risk="medium", limit_seconds=seconds + 30
    )

    async def execute(arguments: WebFetchArguments, context: ToolContext) -> ToolOutput:
        from deputy.tools.web import Web

        answer = await (web or Web()).get(arguments.url, seconds=seconds, limit_bytes=_LIMIT_BYTES)
        async with slots or nullcontext():
            return await _output(answer, arguments.offset, context.output_bytes)

    return StructTool("WebFetch", WebFetchArguments, traits, execute, description_file="web_fetch.md")


async def _output(answer: WebResponse, offset: int, output_bytes: int) -> ToolOutput:
    from deputy.tools.web_page import is_readable, media_type, readable

    media = media_type(answer.content_type, answer.body)
    head = f"{answer.url} answered {answer.status} ({media:.100})"
    if not is_readable(media):
        length = answer.length or len(answer.body)
        text = f"{head}: {length:,} bytes that are not text and are not shown."
        return ToolOutput(text=text, is_error=answer.status >= 400)
    text = await readable(media, answer.content_type, answer.body)
    notes = f"\n[only the first {len(answer.body):,} bytes were fetched]" if answer.is_cut else ""
    shown = beginning(text[offset:], output_bytes)
    missing = len(text) - offset - len(shown)
    if missing > 0:
        notes = f"\n[cut here: {missing:,} more characters; continue with offset={offset + len(shown)}]{notes}"
    return ToolOutput(text=f"{head}\n\n{shown}{notes}", is_error=answer.status >= 400)
