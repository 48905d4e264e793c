"""Files for a subtask: those that it names, and candidates of the workspace that may match it."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from deputy.core.subtask.context_passing import PassedFile
from deputy.tools.interruptible import interruptible
from deputy.tools.read import text_encoding
from deputy.tools.ripgrep import FoundPaths, search
from deputy.tools.tool_error import ToolError
from deputy.tools.truncate import shown_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.tools.interruptible import StopSignal
    from deputy.tools.workspace import Workspace, WorkspacePath

NAMED_BYTES = 200_000
"""The most bytes of a named file."""
CANDIDATES = 5000
"""The most candidate files."""
CANDIDATE_BYTES = 24_000
ALL_BYTES = 32_000_000
SECONDS = 10.0


async def named_files(paths: Sequence[str], workspace: Workspace) -> list[PassedFile]:
    """The files in order, each with its text or the reason why it cannot be read."""
    return await interruptible(lambda _: [_read(path, workspace, NAMED_BYTES) for path in paths])


async def candidate_files(workspace: Workspace, *, seconds: float = SECONDS) -> list[PassedFile]:
    """Text files that no ignore file excludes, within limits of count, size and time."""
    return await interruptible(partial(_candidates, workspace, seconds))


def _candidates(workspace: Workspace, seconds: float, stop: StopSignal) -> list[PassedFile]:
    deadline = time.monotonic() + seconds
    found: list[PassedFile] = []
    left = ALL_BYTES

    def collect(_: Workspace, start: WorkspacePath, limit: int) -> FoundPaths:
        return FoundPaths(workspace, start, limit)

    try:
        paths = search(workspace.whole(), ".", ["--files", "--null"], CANDIDATES, collect, stop).lines
    except ToolError:
        return []
    for path in paths:
        if left <= 0 or time.monotonic() > deadline:
            break
        # Hidden files belong to programs, not to the work.
        if any(part.startswith(".") for part in path.split("/")):
            continue
        file = _read(path, workspace, min(left, CANDIDATE_BYTES))
        if not file.problem and file.text.strip():
            found.append(file)
            left -= len(file.text)
    return found


def _read(path: str, workspace: Workspace, limit: int) -> PassedFile:
    shown = shown_path(path)
    try:
        with workspace.place(path) as place, place.open_file() as file:
            size = place.expect_file().st_size
            content = file.read(limit + 1)
    except ToolError as error:
        return PassedFile(path=shown, problem=str(error).removeprefix(shown).lstrip(": ").rstrip("."))
    except OSError as error:
        return PassedFile(path=shown, problem=str(error.strerror or error))
    encoding = text_encoding(content)
    if encoding is None:
        return PassedFile(path=shown, problem=f"a binary file of {size:,} bytes")
    text = content[:limit].decode(encoding, "replace" if len(content) <= limit else "ignore").removeprefix("\ufeff")
    if len(content) > limit:
        text += f"\n[cut here: the file has {size:,} bytes]"
    return PassedFile(path=shown, text=text)
