"""Read: the numbered lines of a text file; binary and huge files are only described."""

from __future__ import annotations

import asyncio
import codecs
from functools import partial
from io import SEEK_CUR, BytesIO
from typing import TYPE_CHECKING, Annotated, BinaryIO

from msgspec import Meta

from deputy.engine.ports import ToolOutput
from deputy.tools.struct_tool import Arguments, StructTool, traits_of
from deputy.tools.tool_text import NotThere, shown_path
from deputy.tools.what_exists import instead_of

if TYPE_CHECKING:
    from deputy.engine.ports import ToolContext
    from deputy.tools.workspace import Workspace

_MOST_LINES = 2000
_LINE_BYTES = 4000
_HUGE_BYTES = 10 * 1024 * 1024
_MOST_SCANNED_BYTES = 256 * 1024 * 1024
_CHUNK = 1024 * 1024
_PROBED_BYTES = 8192
_EVERY_LINE = 10**12
_NUMBER_BYTES = 8
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class _ReadArguments(Arguments, frozen=True):
    path: Annotated[str, Meta(min_length=1, max_length=4096, description="The file.")]
    offset: Annotated[int, Meta(ge=1, le=10**9, description="The first line; the top is 1.")] = 1
    limit: Annotated[int, Meta(ge=1, le=_MOST_LINES, description="How many lines.")] = _MOST_LINES


def read_tool(workspace: Workspace) -> StructTool[_ReadArguments]:
    """Make the tool Read."""

    async def execute(arguments: _ReadArguments, context: ToolContext) -> ToolOutput:
        found = workspace.read_small(arguments.path)
        if found is None:
            try:
                return await asyncio.to_thread(partial(_read, workspace, arguments, context.output_bytes))
            except NotThere as missing:
                error = await instead_of(workspace, arguments.path, missing)
                if not missing.is_folder:
                    raise error from missing
                return ToolOutput(text=str(error), is_our_own=True, data=error.data)
        path, content = found
        shown = _shown_whole(content, arguments, context.output_bytes)
        if shown is not None:
            return ToolOutput(text=shown)
        return _shown(BytesIO(content), shown_path(path), len(content), arguments, context.output_bytes)

    return StructTool("Read", _ReadArguments, traits_of("Read", "low", 30, is_local=True), execute)


def _read(workspace: Workspace, arguments: _ReadArguments, output_bytes: int) -> ToolOutput:
    with workspace.place(arguments.path) as place, place.open_file() as file:
        name, size = shown_path(place.path), place.expect_file().st_size
        return _shown(file, name, size, arguments, output_bytes)


def _shown_whole(content: bytes, arguments: _ReadArguments, output_bytes: int) -> str | None:
    """Fast path of `_shown` for a plain small file; None when the file needs more care."""
    if text_encoding(content) != "utf-8" or content.startswith(codecs.BOM_UTF8) or b"\r" in content:
        return None
    lines = content.decode("utf-8", "replace").split("\n")
    if not lines[-1]:
        lines.pop()
    first = arguments.offset
    asked = lines[first - 1 :]
    is_whole = 0 < len(asked) <= arguments.limit and len(content) + len(asked) * _NUMBER_BYTES < output_bytes
    # A character takes at most four bytes.
    if not is_whole or max(map(len, asked)) * 4 >= _LINE_BYTES:
        return None
    return "\n".join([f"{number:6}\t{line}" for number, line in enumerate(asked, first)])


def _shown(file: BinaryIO, name: str, size: int, arguments: _ReadArguments, output_bytes: int) -> ToolOutput:
    encoding = text_encoding(file.read(_PROBED_BYTES))
    if encoding is None:
        return ToolOutput(text=f"{name} is a binary file of {size:,} bytes; Read shows only text.")
    is_ranged = arguments.offset > 1 or arguments.limit < _MOST_LINES
    if size > _HUGE_BYTES and not is_ranged:
        remedy = "search it with Grep, or read a part with offset and limit"
        return ToolOutput(text=f"{name} has {size:,} bytes, too many to show whole: {remedy}.")
    file.seek(0)
    return ToolOutput(text=_numbered(_as_utf8(file, encoding), name, arguments, output_bytes))


def text_encoding(beginning: bytes) -> str | None:
    """The encoding of a file by its first bytes; None when it is not text."""
    for mark, encoding in _MARKS:
        if beginning.startswith(mark):
            return encoding
    return None if b"\0" in beginning else "utf-8"


def _as_utf8(file: BinaryIO, encoding: str) -> BinaryIO:
    if encoding.startswith("utf-16"):
        return BytesIO(file.read(_HUGE_BYTES).decode("utf-16", "replace").encode("utf-8", "replace"))
    if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        file.seek(0)
    return file


def _numbered(file: BinaryIO, name: str, arguments: _ReadArguments, output_bytes: int) -> str:
    """The requested lines with their numbers, and a note about the lines after them."""
    first = arguments.offset
    before = _skip_lines(file, first - 1)
    if before < first - 1:
        if file.read(1):
            return f"{name} is too large: line {first:,} is beyond the first {before:,} lines, where reading stopped."
        return f"{name} has {before:,} lines; line {first:,} is past its end."
    lines: list[str] = []
    room = output_bytes
    while len(lines) < arguments.limit and room > 0 and (line := _next_line(file)) is not None:
        lines.append(f"{first + len(lines):6}\t{line}")
        room -= (len(line) if line.isascii() else len(line.encode())) + _NUMBER_BYTES
    if not lines:
        return f"{name} has {before:,} lines; line {first:,} is past its end." if before else f"{name} is empty."
    last = first + len(lines) - 1
    after = _skip_lines(file, _EVERY_LINE)
    if after:
        is_counted = not file.read(1)
        more = f"{after:,}{'' if is_counted else ' and more'} lines follow"
        lines.append(f"[lines {first}–{last} of {name}; {more}: continue with offset={last + 1}]")
    return "\n".join(lines)


def _next_line(file: BinaryIO) -> str | None:
    """The next line without its line end, cut when it is too long; None at the end of the file."""
    line = file.readline(_LINE_BYTES)
    if not line:
        return None
    missing, rest = 0, line
    while rest and not rest.endswith(b"\n"):
        rest = file.readline(_CHUNK)
        missing += len(rest)
    text = line.rstrip(b"\r\n").decode("utf-8", "replace" if not missing else "ignore")
    return f"{text} [… {missing:,} more bytes]" if missing else text


def _skip_lines(file: BinaryIO, count: int) -> int:
    """Skip up to `count` lines, within a limit of bytes; returns the number of skipped lines."""
    skipped = scanned = 0
    last = b"\n"
    while skipped < count and scanned < _MOST_SCANNED_BYTES and (chunk := file.read(_CHUNK)):
        scanned += len(chunk)
        last = chunk[-1:]
        ends = chunk.count(b"\n")
        if skipped + ends >= count:
            position = -1
            for _ in range(count - skipped):
                position = chunk.find(b"\n", position + 1)
            file.seek(position + 1 - len(chunk), SEEK_CUR)
            return count
        skipped += ends
    return skipped + (last != b"\n")
