"""Write: create or replace a whole file."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from deputy.engine.ports import ToolOutput
from deputy.tools.file_change import LARGEST_BYTES, expect_approved, preview_change, replace_file
from deputy.tools.struct_tool import Arguments, StructTool, traits_of
from deputy.tools.tool_text import ToolError, shown_path

if TYPE_CHECKING:
    from deputy.core.approval import FileDigest
    from deputy.engine.ports import Preview, ToolContext
    from deputy.tools.workspace import Workspace


class _WriteArguments(Arguments, frozen=True):
    path: Annotated[str, Meta(min_length=1, max_length=4096)]
    content: Annotated[str, Meta(max_length=LARGEST_BYTES, description="The whole file.")]


def write_tool(workspace: Workspace) -> StructTool[_WriteArguments]:
    """Make the tool Write."""

    async def execute(arguments: _WriteArguments, context: ToolContext) -> ToolOutput:
        return await asyncio.to_thread(partial(_write, workspace, arguments, context.base))

    def preview(arguments: _WriteArguments) -> Preview:
        return preview_change(workspace, arguments.path, lambda _: arguments.content.encode())

    return StructTool("Write", _WriteArguments, traits_of("Write", "medium", 30), execute, preview)


def _write(workspace: Workspace, arguments: _WriteArguments, base: FileDigest | None) -> ToolOutput:
    content = arguments.content.encode()
    with workspace.place(arguments.path, make_parents=True, for_writing=True) as place:
        if place.name == "." or arguments.path.endswith("/"):
            raise ToolError(f"{shown_path(arguments.path)} names a directory; include the file's name.")
        expect_approved(place, base)
        is_new = place.status is None
        replace_file(place, content)
    done = "Created" if is_new else "Replaced"
    return ToolOutput(text=f"{done} {shown_path(place.path)} ({len(content):,} bytes).", changed=(place.path,))
