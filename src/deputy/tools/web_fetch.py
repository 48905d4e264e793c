"""WebFetch: a web page as text."""

from __future__ import annotations

import os
import re
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from deputy.engine.ports import ToolOutput
from deputy.processes.bounded_output import HeadAndTail
from deputy.processes.child_process import interruptible, watch
from deputy.tools.struct_tool import Arguments, StructTool, traits_of
from deputy.tools.tool_text import ToolError, beginning

if TYPE_CHECKING:
    from deputy.engine.ports import ToolContext
    from deputy.processes.child_process import Slots, StopSignal
    from deputy.tools.web import Web, WebResponse

_LIMIT_BYTES = 4 * 1024 * 1024
_SECONDS = 30
CONVERSION_SECONDS = 20
_MOST_MARKDOWN = 8 * 1024 * 1024
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = frozenset({
    "application/json", "application/ld+json", "application/xml", "application/javascript", "application/ecmascript",
    "application/yaml", "application/x-yaml", "application/toml", "application/sql", "application/x-sh",
    "application/x-ndjson", "application/graphql", "image/svg+xml",
})  # fmt: skip
_CHARSETS = frozenset({
    "utf-8", "utf8", "us-ascii", "ascii", "utf-16", "utf-16le", "utf-16be", "windows-1250", "windows-1251",
    "windows-1252", "windows-1253", "windows-1254", "windows-1255", "windows-1256", "windows-1257", "windows-1258",
    "koi8-r", "koi8-u", "iso-8859-1", "iso-8859-2", "iso-8859-3", "iso-8859-4", "iso-8859-5", "iso-8859-6",
    "iso-8859-7", "iso-8859-8", "iso-8859-9", "iso-8859-10", "iso-8859-13", "iso-8859-14", "iso-8859-15",
    "iso-8859-16", "latin1", "macintosh", "shift_jis", "euc-jp", "iso-2022-jp", "gb2312", "gbk", "gb18030", "big5",
    "euc-kr",
})  # fmt: skip
"""Encodings of the web; Python has others that are slow or not text."""


class _WebFetchArguments(Arguments, frozen=True):
    url: Annotated[str, Meta(min_length=1, max_length=4096, description="http or https.")]
    offset: Annotated[int, Meta(ge=0, le=10**8, description="The first character to show.")] = 0


def web_fetch_tool(
    web: Web | None = None, slots: Slots | None = None, *, seconds: float = _SECONDS
) -> StructTool[_WebFetchArguments]:
    """Make the tool WebFetch; shared slots limit the pages that are converted at once."""
    traits = traits_of("WebFetch", "medium", seconds + 30)

    async def execute(arguments: _WebFetchArguments, context: ToolContext) -> ToolOutput:
        from deputy.tools.web import Web

        answer = await (web or Web()).get(arguments.url, seconds=seconds, limit_bytes=_LIMIT_BYTES)
        async with slots or nullcontext():
            return await _output(answer, arguments.offset, context.output_bytes)

    return StructTool("WebFetch", _WebFetchArguments, traits, execute)


async def _output(answer: WebResponse, offset: int, output_bytes: int) -> ToolOutput:
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


def media_type(content_type: str, body: bytes) -> str:
    """The media type from the header, else guessed from the content."""
    named = content_type.split(";", 1)[0].strip().lower()
    if named:
        return named
    start = body[:1024].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "text/html"
    return "application/octet-stream" if b"\0" in body[:8192] else "text/plain"


def is_readable(media: str) -> bool:
    """Whether a media type is text."""
    return media.startswith("text/") or media in _HTML or media in _TEXT or media.endswith(("+json", "+xml"))


async def readable(media: str, content_type: str, body: bytes) -> str:
    """The text of a readable body; HTML becomes Markdown."""
    text = body.decode(_charset(content_type, body), "replace").removeprefix("\ufeff")
    return await interruptible(partial(_to_markdown, text)) if media in _HTML else text


def _charset(content_type: str, body: bytes) -> str:
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    named = re.search(r"charset=[\"']?([\w-]{1,40})", content_type.lower())
    text = named or re.search(r"charset=[\"']?([\w-]{1,40})", body[:2048].decode("ascii", "replace").lower())
    return text[1] if text and text[1] in _CHARSETS else "utf-8"


def _to_markdown(html: str, stop: StopSignal) -> str:
    program = [sys.executable, "-S", "-P", str(Path(__file__).with_name("html_filter.py"))]
    output = HeadAndTail(_MOST_MARKDOWN, 0)
    with TemporaryFile() as page:
        page.write(html.encode("utf-8", "replace"))
        page.seek(0)
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        child = Popen(program, stdin=page, stdout=PIPE, stderr=DEVNULL, env=environment, start_new_session=True)
    with child:
        ended = watch(child, {child.stdout: output.feed}, stop=stop, seconds=CONVERSION_SECONDS)
    if ended.how != "exited" or ended.code != 0:
        raise ToolError("The page could not be converted to Markdown: the conversion failed or took too long.")
    title, _, markdown = output.text.partition("\n")
    return f"# {title}\n\n{markdown}" if title and title not in markdown[:200] else markdown
