"""Glob: list files whose paths match a pattern, sorted by path."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from deputy.processes.child_process import interruptible
from deputy.tools.ripgrep import SEARCH_SECONDS, FoundPaths, search
from deputy.tools.struct_tool import Arguments, StructTool, traits_of
from deputy.tools.tool_text import NotThere, ToolError, shown_path
from deputy.tools.what_exists import instead_of, listing

if TYPE_CHECKING:
    from deputy.engine.ports import ToolContext, ToolOutput
    from deputy.processes.child_process import Slots, StopSignal
    from deputy.tools.workspace import Workspace, WorkspacePath

_MOST_FILES = 2000


class _GlobArguments(Arguments, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=1024, description="A glob, relative to path.")]
    path: Annotated[str, Meta(min_length=1, max_length=4096, description="A folder; default: all.")] = "."
    include_ignored: Annotated[bool, Meta(description="List excluded files too.")] = False
    limit: Annotated[int, Meta(ge=1, le=_MOST_FILES, description="How many files.")] = 200


def glob_tool(workspace: Workspace, slots: Slots | None = None) -> StructTool[_GlobArguments]:
    """Make the tool Glob; shared slots limit the programs that run at once."""
    traits = traits_of("Glob", "low", SEARCH_SECONDS, is_local=True)

    async def execute(arguments: _GlobArguments, context: ToolContext) -> ToolOutput:
        async with slots or nullcontext():
            try:
                return await interruptible(partial(_list, workspace, arguments, context.output_bytes))
            except NotThere as missing:
                raise await instead_of(workspace, arguments.path, missing) from missing

    return StructTool("Glob", _GlobArguments, traits, execute)


def _list(workspace: Workspace, arguments: _GlobArguments, output_bytes: int, stop: StopSignal) -> ToolOutput:
    workspace.granted_below(arguments.path)

    def collect(start: WorkspacePath, limit: int) -> FoundPaths:
        if not start.is_directory:
            raise ToolError(f"{shown_path(arguments.path)} is not a directory; give a directory as `path`.")
        return FoundPaths(workspace, start, limit)

    # Search the whole folder and drop paths outside the grant: ripgrep matches no glob against a single file.
    found = search(workspace.whole(), arguments.path, _options(arguments, workspace), arguments.limit, collect, stop)
    there = "" if found.lines else listing(workspace, arguments.path, stop)
    instead = f"There are:\n{there}" if there else ""
    return found.shown(output_bytes, "narrow the pattern or the path", "No files match.", instead)


def _options(arguments: _GlobArguments, workspace: Workspace) -> list[str]:
    pattern = arguments.pattern.removeprefix("./").removeprefix(f"{workspace.root}/")
    if "\0" in pattern or pattern.startswith("!"):
        raise ToolError(f"{pattern!r:.200} is not a valid pattern; nothing was searched. Give one like `**/*.py`.")
    options = ["--files", "--null", f"--glob={pattern}"]
    return [*options, "--no-ignore"] if arguments.include_ignored else options
