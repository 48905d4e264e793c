"""Edit: replace a piece of text in a file."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from deputy.engine.ports import ToolOutput
from deputy.tools.file_change import LARGEST_BYTES, expect_approved, preview_change, read_whole, replace_file
from deputy.tools.struct_tool import Arguments, StructTool, traits_of
from deputy.tools.tool_text import NotThere, ToolError, shown_path
from deputy.tools.what_exists import instead_of

if TYPE_CHECKING:
    from deputy.core.approval import FileDigest
    from deputy.engine.ports import Preview, ToolContext
    from deputy.tools.workspace import Workspace

_LINES_NAMED = 10


class _EditArguments(Arguments, frozen=True):
    path: Annotated[str, Meta(min_length=1, max_length=4096)]
    old: Annotated[str, Meta(min_length=1, max_length=LARGEST_BYTES)]
    new: Annotated[str, Meta(max_length=LARGEST_BYTES)]
    replace_all: Annotated[bool, Meta(description="Replace every occurrence.")] = False


def edit_tool(workspace: Workspace) -> StructTool[_EditArguments]:
    """Make the tool Edit."""

    async def execute(arguments: _EditArguments, context: ToolContext) -> ToolOutput:
        try:
            return await asyncio.to_thread(partial(_edit, workspace, arguments, context.base))
        except NotThere as missing:
            raise await instead_of(workspace, arguments.path, missing) from missing

    def preview(arguments: _EditArguments) -> Preview:
        name = shown_path(arguments.path)
        return preview_change(workspace, arguments.path, lambda content: _replaced(content, arguments, name)[0])

    return StructTool("Edit", _EditArguments, traits_of("Edit", "medium", 30), execute, preview)


def _edit(workspace: Workspace, arguments: _EditArguments, base: FileDigest | None) -> ToolOutput:
    if arguments.old == arguments.new:
        raise ToolError("`old` and `new` are equal; nothing was changed.")
    with workspace.place(arguments.path, for_writing=True) as place:
        expect_approved(place, base)
        name = shown_path(place.path)
        changed, count = _replaced(read_whole(place), arguments, name)
        replace_file(place, changed)
    times = "1 occurrence" if count == 1 else f"{count:,} occurrences"
    return ToolOutput(text=f"Replaced {times} in {name}.", changed=(place.path,))


def _replaced(content: bytes, arguments: _EditArguments, name: str) -> tuple[bytes, int]:
    """The content after the edit, and the number of replacements."""
    old, new = arguments.old.encode(), arguments.new.encode()
    if _has_other_line_ends(content, old):
        old, new = old.replace(b"\n", b"\r\n"), new if b"\r\n" in new else new.replace(b"\n", b"\r\n")
    count = content.count(old)
    if not count:
        raise ToolError(f"`old` does not occur in {name}; read the file again and copy the text exactly.")
    if count > 1 and not arguments.replace_all:
        lines = ", ".join(map(str, _lines_of(content, old)))
        remedy = "include more of the text around it, or set replace_all"
        raise ToolError(
            f"`old` occurs {count:,} times in {name} (lines {lines}{', …' * (count > _LINES_NAMED)}): {remedy}."
        )
    return content.replace(old, new), count


def _has_other_line_ends(content: bytes, old: bytes) -> bool:
    """Whether the file has Windows line ends where `old` has plain ones, as Read shows them."""
    windows = content.count(b"\r\n")
    if not windows or b"\r\n" in old:
        return False
    # In a file with both kinds a text that occurs as it is stays as it is.
    return windows == content.count(b"\n") or old not in content


def _lines_of(content: bytes, old: bytes) -> list[int]:
    lines: list[int] = []
    position = content.find(old)
    while position >= 0 and len(lines) < _LINES_NAMED:
        lines.append(content.count(b"\n", 0, position) + 1)
        position = content.find(old, position + len(old))
    return lines
