"""A witness beside the journal of what it last made durable: tells a log that lost its end from one that has it all."""

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
    """That a run has a record of this number, and with it all that was committed before or together."""

    run: str
    seq: int


class CommitMarker:
    """The file, held open by whoever writes the journal.

    It is written behind every commit and never synced: what it says is true whenever it is read, and if it is older
    than the journal, or gone, it only says less. So it costs one small write, and trouble with it is nobody's.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._descriptor: int | None = None

    def set(self, position: CommittedPosition) -> None:
        """Say what is durable now."""
        with suppress(OSError):
            if self._descriptor is None:
                self._descriptor = home.open_own(self._path)
            os.pwrite(self._descriptor, _line(position), 0)

    def clear(self) -> None:
        """Say nothing: what was said may be removed now."""
        clear(self._path.parent)

    def close(self) -> None:
        """Let the file go."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def clear(folder: Path) -> None:
    """Say nothing any more, whoever wrote the mark; the file stays, as others may have it open."""
    with suppress(OSError):
        os.truncate(folder / NAME, 0)


def read_marker(folder: Path) -> CommittedPosition | None:
    """What was promised last; None when nothing says so. Read it before the journal, which then has at least that."""
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
