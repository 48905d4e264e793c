"""Standard streams that survive a closed pipe or terminal, so that the work does not fail."""

from __future__ import annotations

import errno
import os
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NO_READER = (errno.EPIPE, errno.EIO)
"""The errors of a pipe without a reader and of a closed terminal."""


class DetachedFile(FileIO):
    """Drops output that has no reader any more; a full disk still fails."""

    def write(self, data: Buffer, /) -> int:
        """Write it, or drop it when there is no reader."""
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in _NO_READER:
                raise
            return memoryview(data).nbytes


class DetachedLog(DetachedFile):
    """Drops output on any error: messages for people must not fail the work."""

    def write(self, data: Buffer, /) -> int:
        """Write it, or drop it on an error."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def open_streams() -> None:
    """Open closed standard streams on /dev/null, and make stdout and stderr survive their readers."""
    for name, mode, kind in (("stdin", "r", None), ("stdout", "w", DetachedFile), ("stderr", "w", DetachedLog)):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            # Otherwise the next opened file gets its descriptor number.
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115  it stays open until the end
        elif kind is not None:
            setattr(sys, name, _outliving(stream, kind))


def is_unread(stream: TextIO) -> bool:
    """Whether a pipe has lost its reader; always false for a terminal or a file."""
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
        # Not a file of the operating system (for example in tests), so it has no reader to lose.
        return stream
    return TextIOWrapper(
        BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=kind is DetachedLog or raw.isatty(),
    )
