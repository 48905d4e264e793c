"""Replace a file's content atomically: write a new file beside it, then rename."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING

from deputy.tools.tool_error import ToolError
from deputy.tools.truncate import shown_path

if TYPE_CHECKING:
    from deputy.tools.workspace import WorkspacePath

LARGEST_BYTES = 10 * 1024 * 1024

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(place: WorkspacePath, content: bytes) -> None:
    """Write the content, and keep the mode of an existing file; a failure changes nothing."""
    if place.status is not None:
        place.expect_file()
    if len(content) > LARGEST_BYTES:
        raise ToolError(f"The content has {len(content):,} bytes; the limit is {LARGEST_BYTES:,}.")
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
    """Refuse to overwrite a concurrent change."""
    now = place.stat()
    if _version(now) != _version(place.status):
        raise ToolError(f"{shown_path(place.path)} was changed by another process meanwhile; read it again.")


def _version(status: os.stat_result | None) -> tuple[int, ...] | None:
    return None if status is None else (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
