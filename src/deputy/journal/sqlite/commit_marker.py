"""The commit marker: a file that names the last durable record, to detect a truncated write-ahead log."""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from deputy.journal import home

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = f"{home.JOURNAL}-mark"
"""The file beside the journal."""
_LONGEST: Final = 2048


class CommittedPosition(NamedTuple):
    """A record that is durable, and with it all commits up to its own."""

    run: str
    seq: int


class CommitMarker:
    """The marker file, held open by the writer.

    It is written after every commit and never synced. An old or missing marker only proves less, so errors are ignored.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._descriptor: int | None = None

    def set(self, position: CommittedPosition) -> None:
        """Name the last durable record."""
        with suppress(OSError):
            if self._descriptor is None:
                self._descriptor = home.open_own(self._path)
            os.pwrite(self._descriptor, _line(position), 0)

    def clear(self) -> None:
        """Empty the marker before its record is removed."""
        clear(self._path.parent)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def clear(folder: Path) -> None:
    """Empty the marker file; it is not deleted, because other processes may have it open."""
    with suppress(OSError):
        os.truncate(folder / NAME, 0)


def read_marker(folder: Path) -> CommittedPosition | None:
    """The marked record, or None. Read it before opening the journal, which must contain that record."""
    try:
        descriptor = os.open(folder / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        line = os.read(descriptor, _LONGEST).partition(b"\n")[0]
        _, seq, run = line.decode().split(" ", 2)
        promise = CommittedPosition(run, int(seq))
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    return promise if _line(promise) == line + b"\n" else None


def _line(position: CommittedPosition) -> bytes:
    said = f"{position.seq} {position.run}".encode(errors="replace")
    return b"%b %b\n" % (blake2b(said, digest_size=8).hexdigest().encode(), said)
