"""Edit: one piece of text in a file replaced by another."""

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
    """What Edit is asked for."""

    path: Annotated[str, Meta(min_length=1, max_length=4096, description="The file, from the workspace's root.")]
    old: Annotated[str, Meta(min_length=1, max_length=LARGEST_BYTES, description="The text to replace, exactly.")]
    new: Annotated[str, Meta(max_length=LARGEST_BYTES, description="The text to put there instead.")]
    replace_all: Annotated[bool, Meta(description="Replace it wherever it stands, not only once.")] = False


def edit_tool(workspace: Workspace) -> StructTool[EditArguments]:
    """The tool Edit over a workspace."""
    traits = ToolTraits(needs_approval=True, risk="medium", limit_seconds=30)

    async def execute(arguments: EditArguments, context: ToolContext) -> ToolOutput:
        return await asyncio.to_thread(partial(_edit, workspace, arguments, context.base))

    def preview(arguments: EditArguments) -> Preview:
        name = shown_path(arguments.path)
        return preview_change(workspace, arguments.path, lambda content: _replaced(content, arguments, name)[0])

    return StructTool("Edit", EditArguments, traits, execute, description_file="edit.md", preview=preview)


def _edit(workspace: Workspace, arguments: EditArguments, base: FileDigest | None) -> ToolOutput:
    if arguments.old == arguments.new:
        raise ToolError("`old` and `new` are the same; nothing was changed.")
    with workspace.place(arguments.path, for_writing=True) as place:
        expect_approved(place, base)
        name = shown_path(place.path)
        content = _content(place, name)
        changed, count = _replaced(content, arguments, name)
        replace_file(place, changed)
    return ToolOutput(text=f"Replaced {count:,} in {name}.", changed=(place.path,))


def _replaced(content: bytes, arguments: EditArguments, name: str) -> tuple[bytes, int]:
    """The content after the edit, and how often the text was replaced."""
    old, new = _with_line_ends_of(content, arguments.old), _with_line_ends_of(content, arguments.new)
    count = content.count(old)
    if not count:
        raise ToolError(f"`old` does not stand in {name}; read it again and copy the text exactly.")
    if count > 1 and not arguments.replace_all:
        lines = ", ".join(map(str, _lines_of(content, old)))
        remedy = "give more of the text around it, or set replace_all"
        raise ToolError(
            f"`old` stands {count:,} times in {name} (lines {lines}{', …' * (count > _LINES_NAMED)}): {remedy}."
        )
    return content.replace(old, new), count


def _content(place: WorkspacePath, name: str) -> bytes:
    with place.open_file() as file:
        content = file.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise ToolError(f"{name} is larger than {LARGEST_BYTES:,} bytes, the most that is edited.")
    return content


def _with_line_ends_of(content: bytes, text: str) -> bytes:
    """A file with Windows line ends is shown without them, so the text to find is given without them, too."""
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
