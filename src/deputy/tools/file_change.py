"""Change a file: the diff for approval, the check against the approved file, and the atomic replacement."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from difflib import SequenceMatcher
from itertools import takewhile
from secrets import token_hex
from typing import TYPE_CHECKING

from deputy.core.approval import ApprovalPart, FileDigest
from deputy.engine.ports import Preview
from deputy.tools.tool_text import ToolError, shown_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deputy.tools.workspace import Workspace, WorkspacePath

LARGEST_BYTES = 10 * 1024 * 1024

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CONTEXT = 3
_MOST_COMPARED = 1_000_000
"""The most pairs of lines to compare; a larger change is shown as removed and added whole."""


def preview_change(workspace: Workspace, path: str, change: Callable[[bytes], bytes]) -> Preview:
    """The approval of a call that changes a file: its real path, its digest and the diff."""
    try:
        with workspace.place(path, for_writing=True) as place:
            old = None if place.status is None else read_whole(place)
            base = digest_of(place, old)
    except (ToolError, OSError) as error:
        # The call makes missing directories; a file that exists there by then was not approved.
        old, base = None, FileDigest(path=path, problem=str(error))
    parts = [ApprovalPart(name="path", text=path)]
    if base.path != path:
        parts.append(ApprovalPart(name="leads to", text=base.path))
    if base.problem:
        parts.append(ApprovalPart(name="state", text=base.problem))
    state = f"{base.bytes:,} bytes, SHA-256 {base.sha256}" if base.sha256 else "new"
    parts.append(ApprovalPart(name="file", text=state))
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
    now = digest_of(place, None if place.status is None else read_whole(place))
    leads_elsewhere = not base.problem and now.path != base.path
    if leads_elsewhere or now.sha256 != base.sha256:
        raise ToolError(
            f"{shown_path(place.path)} has changed since this call was approved; nothing was written. "
            "Read it again and repeat the call."
        )


def read_whole(place: WorkspacePath) -> bytes:
    """The content of a file that is small enough to be changed."""
    with place.open_file() as file:
        content = file.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise ToolError(f"{shown_path(place.path)} has more than {LARGEST_BYTES:,} bytes, so it cannot be changed.")
    return content


def _diff(old: bytes, new: bytes) -> str:
    before, after = _lines(old), _lines(new)
    begin = _equal_at_start(before, after)
    end = _equal_at_start(before[begin:][::-1], after[begin:][::-1])
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


def _equal_at_start(left: Sequence[str], right: Sequence[str]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))))


def _lines(content: bytes) -> list[str]:
    """The lines of a file; bytes that are not text are escaped, a missing last line end is marked."""
    if not content:
        return []
    lines = content.decode(errors="backslashreplace").split("\n")
    if lines[-1]:
        return [*lines[:-1], f"{lines[-1]}\n\\ No newline at end of file"]
    return lines[:-1]


def replace_file(place: WorkspacePath, content: bytes) -> None:
    """Write the content, and keep the mode of an existing file; a failure changes nothing."""
    if place.status is not None:
        place.expect_file()
    if len(content) > LARGEST_BYTES:
        raise ToolError(f"The content has {len(content):,} bytes; the limit is {LARGEST_BYTES:,}. Write less.")
    beside = f".deputy-{token_hex(8)}"
    descriptor = os.open(beside, _NEW, 0o666, dir_fd=place.directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if place.status is not None:
                os.fchmod(descriptor, stat.S_IMODE(place.status.st_mode) & 0o777)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        _expect_unchanged(place)
        os.replace(beside, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=place.directory)
        raise


def _expect_unchanged(place: WorkspacePath) -> None:
    now = place.stat()
    if _version(now) != _version(place.status):
        raise ToolError(f"{shown_path(place.path)} was changed by another process meanwhile; read it again.")


def _version(status: os.stat_result | None) -> tuple[int, ...] | None:
    return None if status is None else (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
