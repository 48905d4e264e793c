"""Write: create or replace a whole file."""

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
    from deputy.tools.workspace import Workspace


class WriteArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of Write."""

    path: Annotated[str, Meta(min_length=1, max_length=4096, description="The file, from the workspace's root.")]
    content: Annotated[str, Meta(max_length=LARGEST_BYTES, description="The whole content of the file.")]


def write_tool(workspace: Workspace) -> StructTool[WriteArguments]:
    """Make the tool Write."""
    traits = ToolTraits(needs_approval=True, risk="medium", limit_seconds=30)

    async def execute(arguments: WriteArguments, context: ToolContext) -> ToolOutput:
        return await asyncio.to_thread(partial(_write, workspace, arguments, context.base))

    def preview(arguments: WriteArguments) -> Preview:
        return preview_change(workspace, arguments.path, lambda _: arguments.content.encode())

    return StructTool("Write", WriteArguments, traits, execute, description_file="write.md", preview=preview)


def _write(workspace: Workspace, arguments: WriteArguments, base: FileDigest | None) -> ToolOutput:
    content = arguments.content.encode()
    with workspace.place(arguments.path, make_parents=True, for_writing=True) as place:
        if place.name == "." or arguments.path.endswith("/"):
            raise ToolError(f"{shown_path(arguments.path)} names a directory; include the file's name.")
        expect_approved(place, base)
        is_new = place.status is None
        replace_file(place, content)
    done = "Created" if is_new else "Replaced"
    return ToolOutput(text=f"{done} {shown_path(place.path)} ({len(content):,} bytes).", changed=(place.path,))
