"""Files for tasks: the context files before a prompt, the files that a subtask is given, and their ranking."""

from __future__ import annotations

import asyncio
import re
import time
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from deputy.core.approval import FileDigest
from deputy.core.subtask.context_passing import PassedFile
from deputy.core.subtask.relevance import rank
from deputy.engine.ports import TaskFiles
from deputy.tools.read import text_encoding
from deputy.tools.ripgrep import FoundPaths, search
from deputy.tools.tool_text import ToolError, shown_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deputy.processes.child_process import StopSignal
    from deputy.tools.workspace import Workspace

NAMED_BYTES = 200_000
"""The most bytes of a named file."""
CANDIDATES = 5000
"""The most candidate files."""
CANDIDATE_BYTES = 24_000
ALL_BYTES = 32_000_000
_SECONDS = 10.0


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
            body = _fenced(_text(content, size, left))
            if size > left:
                warnings.append(
                    f"The context file {shown_path(path)} is cut: {left:,} of its {size:,} bytes are passed."
                )
            left -= len(content)
        except ToolError as error:
            if expected:
                changed.append(path)
            body = f"(not included: {error})"
            warnings.append(f"The context file {shown_path(path)} is not included: {error}")
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
    with workspace.place(path) as place, place.open_file() as file:
        return file.read(byte_limit), place.expect_file().st_size


def _text(content: bytes, size: int, left: int) -> str:
    if left <= 0:
        raise ToolError("the limit for files is reached.")
    is_whole = max(size, len(content)) <= left
    encoding = text_encoding(content[:left])
    if encoding is None:
        raise ToolError(f"it is a binary file of {size:,} bytes.")
    text = content[:left].decode(encoding, "replace" if is_whole else "ignore").removeprefix("\ufeff")
    return text if is_whole else f"{text}\n[cut here: the limit for files is reached; the file has {size:,} bytes]"


def _fenced(text: str) -> str:
    """The text in a code fence longer than any in the text."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def candidate_files(workspace: Workspace, stop: StopSignal) -> list[PassedFile]:
    """Text files that no ignore file excludes, within limits of count, size and time."""
    deadline = time.monotonic() + _SECONDS
    found: list[PassedFile] = []
    left = ALL_BYTES
    collect = partial(FoundPaths, workspace)
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
        file = passed_file(path, workspace, min(left, CANDIDATE_BYTES))
        if not file.problem and file.text.strip():
            found.append(file)
            left -= len(file.text)
    return found


def passed_file(path: str, workspace: Workspace, limit: int = NAMED_BYTES) -> PassedFile:
    """A file with its text, or with the reason why it cannot be read."""
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


class WordRanker:
    """Ranks by BM25."""

    async def rank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """The relevance of each text to the query, computed in a thread."""
        return await asyncio.to_thread(rank, query, texts)
