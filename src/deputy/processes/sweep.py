"""Processes that left their group, found and killed by a mark in their environment."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from string import ascii_letters, digits
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TAG = "DEPUTY_CALL"
"""The variable that marks a call's processes, wherever they went and whatever group they are in."""

_POLL_SECONDS = 0.02
_SWEEPS = 50
_TAG_LETTERS = frozenset(ascii_letters + digits + "-_")


def tag_of(call_id: str) -> str:
    """How the tags of a call's processes begin; ids come from models, so only harmless characters are kept."""
    return "".join(letter for letter in call_id[:100] if letter in _TAG_LETTERS) + ":"


def sweep(tag: str) -> None:
    """Kill every process whose environment has a tag that begins so: those that left their group cannot hide."""
    mark = f"\0{TAG}={tag}".encode()
    for _ in range(_SWEEPS):
        if not sum(_kill(pid, mark) for pid in _processes()):
            return
        time.sleep(_POLL_SECONDS)


def _processes() -> Iterator[int]:
    with suppress(OSError):
        yield from (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _kill(pid: int, mark: bytes) -> bool:
    """Whether a process carries the mark, in which case it is killed; its number cannot be another's by then."""
    if pid == os.getpid() or not _carries(pid, mark):
        return False
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _carries(pid, mark):
            return False
        with suppress(OSError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)
    return True


def _carries(pid: int, mark: bytes) -> bool:
    try:
        return mark in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
