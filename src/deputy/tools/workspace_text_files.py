"""Text files of a workspace for programs that ask Deputy to read and write them."""

from __future__ import annotations

import posixpath
from itertools import islice
from typing import TYPE_CHECKING

from deputy.engine.ports.backend import NotServed
from deputy.tools.file_change import read_whole, replace_file
from deputy.tools.tool_text import ToolError
from deputy.tools.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from deputy.core.request import Grant


class WorkspaceTextFiles:
    """The text files of a workspace, limited to a grant, without private files."""

    def __init__(self, root: str, grant: Grant, *, private: Sequence[Path] = (), main: Path | None = None) -> None:
        self._workspace = Workspace(root, grant, private=private, main=main)

    def refusal(self, path: str, *, for_writing: bool) -> NotServed | None:
        """Why a path is refused; None when it is allowed."""
        try:
            with self._workspace.place(path, for_writing=for_writing):
                return None
        except (ToolError, OSError) as error:
            above = posixpath.dirname(path.rstrip("/"))
            # A missing folder is checked by its parent.
            if for_writing and above and isinstance(error.__cause__, FileNotFoundError):
                return self.refusal(above, for_writing=True)
            return NotServed(reason=str(error))

    def read(self, path: str, first_line: int, lines: int | None) -> str | NotServed:
        """Lines of a file, counted from 1; `lines` None is all of them."""
        try:
            with self._workspace.place(path) as place:
                if place.status is None:
                    return NotServed(reason=f"{path!r:.200} does not exist.", is_missing=True)
                text = read_whole(place).decode("utf-8", "replace")
        except (ToolError, OSError) as error:
            return NotServed(reason=str(error), is_missing=isinstance(error.__cause__, FileNotFoundError))
        if first_line <= 1 and lines is None:
            return text
        start = max(0, first_line - 1)
        stop = None if lines is None else start + max(0, lines)
        return "".join(islice(text.splitlines(keepends=True), start, stop))

    def write(self, path: str, content: str) -> NotServed | None:
        """Write a whole file; None on success."""
        try:
            with self._workspace.place(path, make_parents=True, for_writing=True) as place:
                if place.name == "." or path.endswith("/"):
                    return NotServed(reason=f"{path!r:.200} names a directory.")
                replace_file(place, content.encode("utf-8", "replace"))
        except (ToolError, OSError) as error:
            return NotServed(reason=str(error))
        return None
