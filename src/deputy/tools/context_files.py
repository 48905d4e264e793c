"""Files named in a task, put before its prompt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deputy.engine.ports import TaskFiles
from deputy.tools.cut import shown_path
from deputy.tools.errors import ToolError
from deputy.tools.read import text_encoding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.tools.workspace import Workspace


def files_before_prompt(paths: Sequence[str], workspace: Workspace, byte_limit: int) -> TaskFiles:
    """The files in order, each under its path, within a limit for all of them; what cannot be had is named in place."""
    sections: list[str] = []
    warnings: list[str] = []
    left = byte_limit
    for path in paths:
        try:
            text, used = _text(path, workspace, left)
            body = _fenced(text)
        except ToolError as error:
            body, used = f"(not included: {error})", 0
            warnings.append(f"The context file {shown_path(path)} is not included: {error}")
        left -= used
        sections.append(f"## {shown_path(path)}\n\n{body}")
    return TaskFiles(text="\n\n".join(sections), warnings=tuple(warnings))


def _text(path: str, workspace: Workspace, left: int) -> tuple[str, int]:
    """The file's text, cut to what is left of the limit, and how much of the limit it takes."""
    with workspace.place(path) as place, place.open_file() as file:
        if left <= 0:
            raise ToolError("the limit for files is reached.")
        size = place.expect_file().st_size
        content = file.read(left)
        encoding = text_encoding(content)
        if encoding is None:
            raise ToolError(f"it is a binary file of {size:,} bytes.")
        is_whole = not file.read(1)
    text = content.decode(encoding, "replace" if is_whole else "ignore").removeprefix("\ufeff")
    return (
        text if is_whole else f"{text}\n[cut here: the limit for files is reached; the file has {size:,} bytes]",
        len(content),
    )


def _fenced(text: str) -> str:
    """The text in a fence that nothing in it can close."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"
