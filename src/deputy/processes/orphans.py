"""Find and kill processes that left their process group, by a tag in their environment."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from string import ascii_letters, digits
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TAG = "DEPUTY_CALL"
"""The environment variable that tags the processes of a call."""

_POLL_SECONDS = 0.02
_SWEEPS = 50
_KERNEL_THREAD = 0x0020_0000
_TAG_LETTERS = frozenset(ascii_letters + digits + "-_")


def environment_tag(call_id: str) -> str:
    """The prefix of a call's tags; ids come from models, so only safe characters are kept."""
    return "".join(letter for letter in call_id[:100] if letter in _TAG_LETTERS) + ":"


def kill_orphans(*tags: str) -> None:
    """Kill every process whose environment has a tag with one of these prefixes."""
    marks = [f"\0{TAG}={tag}".encode() for tag in tags]
    for _ in range(_SWEEPS if tags else 0):
        seen = [_kill(pid, marks) for pid in _processes()]
        if not any(seen) and None not in seen:
            return
        time.sleep(_POLL_SECONDS)


def _processes() -> Iterator[int]:
    with suppress(OSError):
        yield from (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _kill(pid: int, marks: Sequence[bytes]) -> bool | None:
    """Kill a process that has a mark; whether it had one, or None when that cannot be seen yet.

    The pidfd makes sure that a reused process id is not killed.
    """
    if pid == os.getpid():
        return False
    carries = _carries(pid, marks)
    if not carries:
        return carries
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _carries(pid, marks):
            return False
        with suppress(OSError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)
    return True


def _carries(pid: int, marks: Sequence[bytes]) -> bool | None:
    try:
        environ = _environ(pid)
        if not environ:
            if _is_becoming(pid):
                return None
            # The exec may have finished since.
            environ = _environ(pid)
    except OSError:
        return False
    return any(mark in b"\0" + environ for mark in marks)


def _environ(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def _is_becoming(pid: int) -> bool:
    """Whether a process is in the middle of an exec: it has neither environment nor arguments then."""
    if Path(f"/proc/{pid}/cmdline").read_bytes():
        return False
    state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return state not in "ZX" and not int(fields[5]) & _KERNEL_THREAD
