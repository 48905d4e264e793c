"""Text files of a workspace, as programs of other agents ask for them: beneath its root, or not at all."""

from __future__ import annotations

import posixpath
from itertools import islice
from typing import TYPE_CHECKING

from deputy.engine.ports.text_files import NotServed
from deputy.tools.replace_file import LARGEST_BYTES, replace_file
from deputy.tools.tool_error import ToolError
from deputy.tools.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from deputy.core.request import Grant


class WorkspaceTextFiles:
    """The text files of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def refusal(self, path: str, *, for_writing: bool) -> NotServed | None:
        """Why a path may not be reached; None when it may."""
        try:
            with self._workspace.place(path, for_writing=for_writing):
                return None
        except (ToolError, OSError) as error:
            above = posixpath.dirname(path.rstrip("/"))
            # A folder that is not there yet leads where the one above it does.
            if for_writing and above and isinstance(error.__cause__, FileNotFoundError):
                return self.refusal(above, for_writing=True)
            return NotServed(reason=str(error))

    def read(self, path: str, first_line: int, lines: int | None) -> str | NotServed:
        """So many lines of a file from one on, counted from 1."""
        try:
            with self._workspace.place(path) as place:
                if place.status is None:
                    return NotServed(reason=f"{path!r:.200} does not exist.", is_missing=True)
                with place.open_file() as file:
                    content = file.read(LARGEST_BYTES + 1)
        except (ToolError, OSError) as error:
            return NotServed(reason=str(error), is_missing=isinstance(error.__cause__, FileNotFoundError))
        if len(content) > LARGEST_BYTES:
            return NotServed(reason=f"{path!r:.200} is larger than {LARGEST_BYTES:,} bytes.")
        text = content.decode("utf-8", "replace")
        if first_line <= 1 and lines is None:
            return text
        start = max(0, first_line - 1)
        stop = None if lines is None else start + max(0, lines)
        return "".join(islice(text.splitlines(keepends=True), start, stop))

    def write(self, path: str, content: str) -> NotServed | None:
        """Put a whole file in place; None when that is done."""
        try:
            with self._workspace.place(path, make_parents=True, for_writing=True) as place:
                if place.name == "." or path.endswith("/"):
                    return NotServed(reason=f"{path!r:.200} names a directory.")
                replace_file(place, content.encode("utf-8", "replace"))
        except (ToolError, OSError) as error:
            return NotServed(reason=str(error))
        return None


def open_text_files(
    root: str, grant: Grant, *, private: Sequence[Path] = (), main: Path | None = None
) -> WorkspaceTextFiles:
    """The text files beneath a root, as far as a grant goes; what is private is withheld as from our own tools."""
    return WorkspaceTextFiles(Workspace(root, grant, private=private, main=main))
