"""Context files of a task, as text before its prompt."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

from deputy.core.approval import FileDigest
from deputy.engine.ports import TaskFiles
from deputy.tools.read import text_encoding
from deputy.tools.tool_error import ToolError
from deputy.tools.truncate import shown_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deputy.tools.workspace import Workspace


def files_before_prompt(
    paths: Sequence[str], workspace: Workspace, byte_limit: int, approved: Mapping[str, str] | None = None
) -> TaskFiles:
    """The files in order, each under its path, within one limit for all; an unreadable file is named with the reason.

    A file must match its digest in `approved`, which is empty for a file that was missing.
    """
    sections: list[str] = []
    warnings: list[str] = []
    changed: list[str] = []
    left = byte_limit
    for path in paths:
        expected = None if approved is None else approved.get(path, "")
        try:
            content, size = _content(path, workspace, byte_limit)
            if expected is not None and sha256(content).hexdigest() != expected:
                changed.append(path)
                continue
            text, used = _text(content, size, left)
            body = _fenced(text)
        except ToolError as error:
            if expected:
                changed.append(path)
            body, used = f"(not included: {error})", 0
            warnings.append(f"The context file {shown_path(path)} is not included: {error}")
        left -= used
        sections.append(f"## {shown_path(path)}\n\n{body}")
    return TaskFiles(text="\n\n".join(sections), warnings=tuple(warnings), changed=tuple(changed))


def context_digest(path: str, workspace: Workspace, byte_limit: int) -> FileDigest:
    """The digest of a context file for approval, of as much of it as fits before a prompt."""
    try:
        content, size = _content(path, workspace, byte_limit)
    except (ToolError, OSError) as error:
        return FileDigest(path=path, problem=str(error))
    return FileDigest(path=path, sha256=sha256(content).hexdigest(), bytes=size)


def _content(path: str, workspace: Workspace, byte_limit: int) -> tuple[bytes, int]:
    """As much of a file as fits before a prompt, and its whole size."""
    with workspace.place(path) as place, place.open_file() as file:
        return file.read(byte_limit), place.expect_file().st_size


def _text(content: bytes, size: int, left: int) -> tuple[str, int]:
    """The file's text, cut to the rest of the limit, and how many bytes of the limit it uses."""
    if left <= 0:
        raise ToolError("the limit for files is reached.")
    is_whole = max(size, len(content)) <= left
    content = content[:left]
    encoding = text_encoding(content)
    if encoding is None:
        raise ToolError(f"it is a binary file of {size:,} bytes.")
    text = content.decode(encoding, "replace" if is_whole else "ignore").removeprefix("\ufeff")
    return (
        text if is_whole else f"{text}\n[cut here: the limit for files is reached; the file has {size:,} bytes]",
        len(content),
    )


def _fenced(text: str) -> str:
    """The text in a code fence longer than any in the text."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"
