"""What a FILE|- argument stands for: the bytes of a file or of standard input, within a bound."""

from __future__ import annotations

import os
import stat
import sys

from deputy.core.errors import UsageError

LIMIT_BYTES = 64 * 1024 * 1024
FILE = "FILE"
"""What the argument is called where a command does not say."""


def read_source(path: str, *, limit_bytes: int = LIMIT_BYTES, field: str = FILE) -> bytes:
    """The content of a regular file, or of standard input for `-`; a UsageError of the field says what is wrong."""
    content = _read_stdin(limit_bytes, field) if path == "-" else _read_file(path, limit_bytes, field)
    if len(content) > limit_bytes:
        raise UsageError(field, path, f"it is larger than {limit_bytes // 1024 // 1024} MiB, the most that is read")
    return content


def read_text(path: str, *, limit_bytes: int = LIMIT_BYTES, field: str = FILE) -> str:
    """The same as text: UTF-8 with or without a BOM; bytes that are not UTF-8 are replaced, never fatal."""
    return read_source(path, limit_bytes=limit_bytes, field=field).decode("utf-8-sig", errors="replace")


def _read_stdin(limit_bytes: int, field: str) -> bytes:
    stdin = getattr(sys, "stdin", None)
    if stdin is None:
        raise UsageError(field, "-", "standard input is closed; give a file")
    return stdin.buffer.read(limit_bytes + 1)


def _read_file(path: str, limit_bytes: int, field: str) -> bytes:
    try:
        # A FIFO would block the open for ever; a device has no end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(
            field, path, f"cannot read it: {error.strerror}; give a readable file, or - for stdin"
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(field, path, "it is not a regular file; give one, or - to read standard input")
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit_bytes + 1)
