"""What exists instead of a path that does not: files of the same name, or the nearest folder."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from deputy.core.short_listing import short_listing
from deputy.processes.child_process import interruptible
from deputy.tools.ripgrep import FoundPaths, search
from deputy.tools.tool_text import NotThere, ToolError, shown_path

if TYPE_CHECKING:
    from deputy.processes.child_process import StopSignal
    from deputy.tools.workspace import Workspace

_MOST_FILES = 2000
_MOST_NAMESAKES = 10
_PLAIN_NAME = re.compile(r"[\w .+@=,-]+")


async def instead_of(workspace: Workspace, path: str, missing: NotThere) -> ToolError:
    """The error for a path that does not exist, with the names that do."""
    return await interruptible(partial(_instead_of, workspace, path, missing))


def _instead_of(workspace: Workspace, path: str, missing: NotThere, stop: StopSignal) -> ToolError:
    if missing.is_folder:
        return ToolError(str(missing), listing(workspace, path, stop))
    parts = [part for part in path.split("/") if part not in ("", ".")]
    name = parts[-1] if parts else ""
    if _PLAIN_NAME.fullmatch(name) and (found := _files(workspace, ".", f"**/{name}", _MOST_NAMESAKES, stop)):
        return ToolError(str(missing), "\n".join(["There is:", *found]))
    folder = next((where for where in _above(parts) if _is_folder(workspace, where)), ".")
    where = "The workspace" if folder == "." else shown_path(folder)
    has = listing(workspace, folder, stop)
    return ToolError(str(missing), f"{where} has:\n{has}" if has else "")


def listing(workspace: Workspace, folder: str, stop: StopSignal) -> str:
    """A short listing of a folder; empty if it has no files."""
    return short_listing(_files(workspace, folder, "*", _MOST_FILES, stop))


def _files(workspace: Workspace, folder: str, pattern: str, most: int, stop: StopSignal) -> list[str]:
    options = ["--files", "--null", f"--glob={pattern}"]
    return search(workspace, folder, options, most, partial(FoundPaths, workspace), stop).lines


def _above(parts: list[str]) -> list[str]:
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _is_folder(workspace: Workspace, path: str) -> bool:
    try:
        with workspace.place(path) as place:
            return place.is_directory
    except ToolError:
        return False
