"""Read a FILE|- argument: a file or standard input, up to a size limit."""

from __future__ import annotations

import os
import stat
import sys

from deputy.core.errors import UsageError

LIMIT_BYTES = 64 * 1024 * 1024
FILE = "FILE"
"""The default name of the argument in errors."""


def read_source(path: str, *, limit_bytes: int = LIMIT_BYTES, field: str = FILE) -> bytes:
    """Read a regular file, or standard input for `-`; a UsageError names the field."""
    content = _read_stdin(limit_bytes, field) if path == "-" else _read_file(path, limit_bytes, field)
    if len(content) > limit_bytes:
        raise UsageError(field, path, f"it is larger than the limit of {limit_bytes // 1024 // 1024} MiB")
    return content


def read_text(path: str, *, limit_bytes: int = LIMIT_BYTES, field: str = FILE) -> str:
    """Read it as text: UTF-8 with or without a BOM; invalid bytes are replaced."""
    return read_source(path, limit_bytes=limit_bytes, field=field).decode("utf-8-sig", errors="replace")


def _read_stdin(limit_bytes: int, field: str) -> bytes:
    stdin = getattr(sys, "stdin", None)
    if stdin is None:
        raise UsageError(field, "-", "standard input is closed; give a file")
    return stdin.buffer.read(limit_bytes + 1)


def _read_file(path: str, limit_bytes: int, field: str) -> bytes:
    try:
        # O_NONBLOCK: opening a FIFO without a writer would block forever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(
            field, path, f"cannot read it: {error.strerror}; give a readable file, or - for stdin"
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(field, path, "it is not a regular file; give a file, or - for stdin")
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit_bytes + 1)
