"""The diff of a file change for approval, and the check that the file is still the approved one."""

from __future__ import annotations

import hashlib
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from deputy.core.approval import ApprovalPart, FileDigest
from deputy.engine.ports import Preview
from deputy.tools.replace_file import LARGEST_BYTES
from deputy.tools.tool_error import ToolError
from deputy.tools.truncate import shown_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deputy.tools.workspace import Workspace, WorkspacePath

_CONTEXT = 3
_MOST_COMPARED = 1_000_000
"""The most pairs of lines to compare; a larger change is shown as removed and added whole."""


def preview_change(workspace: Workspace, path: str, change: Callable[[bytes], bytes]) -> Preview:
    """The approval of a call that changes a file: its real path, its digest and the diff."""
    try:
        with workspace.place(path, for_writing=True) as place:
            old = None if place.status is None else _content(place)
            base = digest_of(place, old)
    except (ToolError, OSError) as error:
        # The call makes missing directories; a file that exists there by then was not approved.
        old, base = None, FileDigest(path=path, problem=str(error))
    parts = [ApprovalPart(name="path", text=path)]
    if base.path != path:
        parts.append(ApprovalPart(name="leads to", text=base.path))
    if base.problem:
        parts.append(ApprovalPart(name="state", text=base.problem))
    parts.append(ApprovalPart(name="file", text=_file_text(base)))
    try:
        parts.append(ApprovalPart(name="diff", text=_diff(old or b"", change(old or b""))))
    except ToolError as error:
        parts.append(ApprovalPart(name="fails", text=str(error)))
    return Preview(parts=tuple(parts), base=base)


def digest_of(place: WorkspacePath, content: bytes | None) -> FileDigest:
    """The digest of a file's content; empty when there is no file."""
    if content is None:
        return FileDigest(path=place.path)
    return FileDigest(path=place.path, sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))


def expect_approved(place: WorkspacePath, base: FileDigest | None) -> None:
    """Refuse to change a file other than the approved one, or one that changed after the approval."""
    if base is None:
        return
    now = digest_of(place, None if place.status is None else _content(place))
    leads_elsewhere = not base.problem and now.path != base.path
    if leads_elsewhere or now.sha256 != base.sha256:
        raise ToolError(
            f"{shown_path(place.path)} has changed since this call was approved; nothing was written. "
            "Read it again and repeat the call."
        )


def _content(place: WorkspacePath) -> bytes:
    with place.open_file() as file:
        content = file.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise ToolError(f"{shown_path(place.path)} is larger than {LARGEST_BYTES:,} bytes, the limit for a change.")
    return content


def _file_text(base: FileDigest) -> str:
    return f"{base.bytes:,} bytes, SHA-256 {base.sha256}" if base.sha256 else "new"


def _diff(old: bytes, new: bytes) -> str:
    """A unified diff; linear time for large files."""
    before, after = _lines(old), _lines(new)
    begin = _common(before, after)
    end = _common(before[begin:][::-1], after[begin:][::-1])
    start = max(0, begin - _CONTEXT)
    rest = max(0, end - _CONTEXT)
    left, right = before[start : len(before) - rest], after[start : len(after) - rest]
    if len(left) * len(right) > _MOST_COMPARED:
        codes = [[("replace", 0, len(left), 0, len(right))]]
    else:
        codes = SequenceMatcher(None, left, right, autojunk=False).get_grouped_opcodes(_CONTEXT)
    hunks = (row for group in codes for row in _hunk(group, left, right, start))
    return "\n".join(hunks) or "(no change)"


def _hunk(
    group: Sequence[tuple[str, int, int, int, int]], left: list[str], right: list[str], start: int
) -> Iterator[str]:
    first, last = group[0], group[-1]
    yield (f"@@ -{start + first[1] + 1},{last[2] - first[1]} +{start + first[3] + 1},{last[4] - first[3]} @@")
    for tag, old_from, old_to, new_from, new_to in group:
        if tag == "equal":
            yield from (f" {line}" for line in left[old_from:old_to])
            continue
        yield from (f"-{line}" for line in left[old_from:old_to])
        yield from (f"+{line}" for line in right[new_from:new_to])


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    """The number of equal lines at the beginning."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _lines(content: bytes) -> list[str]:
    """The lines of a file; bytes that are not text are escaped, a missing last line end is marked."""
    if not content:
        return []
    lines = content.decode(errors="backslashreplace").split("\n")
    if lines[-1]:
        return [*lines[:-1], f"{lines[-1]}\n\\ No newline at end of file"]
    return lines[:-1]
