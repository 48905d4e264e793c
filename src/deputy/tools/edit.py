"""Edit: replace a piece of text in a file."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from deputy.engine.ports import ToolOutput, ToolTraits
from deputy.tools.file_diff import expect_approved, preview_change
from deputy.tools.replace_file import LARGEST_BYTES, replace_file
from deputy.tools.struct_tool import StructTool
from deputy.tools.tool_error import ToolError
from deputy.tools.truncate import shown_path

if TYPE_CHECKING:
    from deputy.core.approval import FileDigest
    from deputy.engine.ports import Preview, ToolContext
    from deputy.tools.workspace import Workspace, WorkspacePath

_LINES_NAMED = 10


class EditArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of Edit."""

    path: Annotated[str, Meta(min_length=1, max_length=4096, description="The file, from the workspace's root.")]
    old: Annotated[str, Meta(min_length=1, max_length=LARGEST_BYTES, description="The text to replace, exactly.")]
    new: Annotated[str, Meta(max_length=LARGEST_BYTES, description="The new text.")]
    replace_all: Annotated[bool, Meta(description="Replace every occurrence, not only one.")] = False


def edit_tool(workspace: Workspace) -> StructTool[EditArguments]:
    """Make the tool Edit."""
    traits = ToolTraits(needs_approval=True, risk="medium", limit_seconds=30)

    async def execute(arguments: EditArguments, context: ToolContext) -> ToolOutput:
        return await asyncio.to_thread(partial(_edit, workspace, arguments, context.base))

    def preview(arguments: EditArguments) -> Preview:
        name = shown_path(arguments.path)
        return preview_change(workspace, arguments.path, lambda content: _replaced(content, arguments, name)[0])

    return StructTool("Edit", EditArguments, traits, execute, description_file="edit.md", preview=preview)


def _edit(workspace: Workspace, arguments: EditArguments, base: FileDigest | None) -> ToolOutput:
    if arguments.old == arguments.new:
        raise ToolError("`old` and `new` are equal; nothing was changed.")
    with workspace.place(arguments.path, for_writing=True) as place:
        expect_approved(place, base)
        name = shown_path(place.path)
        content = _content(place, name)
        changed, count = _replaced(content, arguments, name)
        replace_file(place, changed)
    times = "1 occurrence" if count == 1 else f"{count:,} occurrences"
    return ToolOutput(text=f"Replaced {times} in {name}.", changed=(place.path,))


def _replaced(content: bytes, arguments: EditArguments, name: str) -> tuple[bytes, int]:
    """The content after the edit, and the number of replacements."""
    old, new = _with_line_ends_of(content, arguments.old), _with_line_ends_of(content, arguments.new)
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


def _content(place: WorkspacePath, name: str) -> bytes:
    with place.open_file() as file:
        content = file.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise ToolError(f"{name} is larger than {LARGEST_BYTES:,} bytes, the limit for an edit.")
    return content


def _with_line_ends_of(content: bytes, text: str) -> bytes:
    """The text with the line ends of the file: Read shows Windows line ends as plain ones."""
    encoded = text.encode()
    if b"\r\n" in content and b"\r\n" not in encoded:
        return encoded.replace(b"\n", b"\r\n")
    return encoded


def _lines_of(content: bytes, old: bytes) -> list[int]:
    lines: list[int] = []
    position = content.find(old)
    while position >= 0 and len(lines) < _LINES_NAMED:
        lines.append(content.count(b"\n", 0, position) + 1)
        position = content.find(old, position + len(old))
    return lines
