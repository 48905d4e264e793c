"""Standard streams that outlive their readers: nobody reading is no reason for work to fail."""

from __future__ import annotations

import errno
import os
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NOBODY = (errno.EPIPE, errno.EIO)
"""What a pipe without a reader and a terminal that was hung up say."""


class DetachedFile(FileIO):
    """Takes what is written whether or not anybody still reads it; a disk that is full still fails."""

    def write(self, data: Buffer, /) -> int:
        """Write it, or drop it when nobody reads."""
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in _NOBODY:
                raise
            return memoryview(data).nbytes


class DetachedLog(DetachedFile):
    """The same for what only people read: no trouble with it is worth failing for."""

    def write(self, data: Buffer, /) -> int:
        """Write it, or drop it."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def open_streams() -> None:
    """Have all three standard streams, whatever was closed, and let the ones we write to outlive their readers."""
    for name, mode, kind in (("stdin", "r", None), ("stdout", "w", DetachedFile), ("stderr", "w", DetachedLog)):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            # It would stay None, and the next file opened would take its number.
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115  it stays open until the end
        elif kind is not None:
            setattr(sys, name, _outliving(stream, kind))


def is_unread(stream: TextIO) -> bool:
    """Whether the reader of a pipe went away; a terminal and a file always count as read."""
    import select

    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return False
    poll = select.poll()
    poll.register(number, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _outliving(stream: TextIO, kind: type[DetachedFile]) -> TextIO:
    try:
        raw = kind(stream.fileno(), "wb", closefd=False)
    except (OSError, ValueError):
        # It is no file of the system's, so it has no reader that could go away.
        return stream
    return TextIOWrapper(
        BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=kind is DetachedLog or raw.isatty(),
    )
