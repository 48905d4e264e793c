"""The identity of a process, unique across reused process ids."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

_PID_DIGITS = 20


class ProcessIdentity(Struct, frozen=True, kw_only=True):
    """A process: its id, start time, boot and PID namespace."""

    boot: str
    space: str
    pid: int
    started: str
    nonce: str = ""

    @property
    def name(self) -> str:
        """The identity as one word, as the journal stores it."""
        return "/".join((self.boot, self.space, str(self.pid), self.started, self.nonce))

    @classmethod
    def named(cls, name: str) -> ProcessIdentity | None:
        """The identity of this name; None when it is not one."""
        parts = name.split("/")
        if len(parts) != 5 or not parts[2].isdecimal() or len(parts[2]) > _PID_DIGITS:
            return None
        boot, space, pid, started, nonce = parts
        return cls(boot=boot, space=space, pid=int(pid), started=started, nonce=nonce)


def this_process() -> ProcessIdentity:
    """A new identity of this process; each call has its own nonce."""
    return ProcessIdentity(
        boot=boot_id(),
        space=_space(),
        pid=os.getpid(),
        started=_started(os.getpid()) or "0",
        nonce=os.urandom(4).hex(),
    )


def is_gone(owner: ProcessIdentity) -> bool:
    """Whether that process has certainly ended; in another PID namespace it may still run."""
    if owner.boot != boot_id():
        return True
    return owner.space == _space() and _started(owner.pid) != owner.started


def pid_in(name: str) -> str:
    """The process id in a name, to show it; a name from the store may be any text."""
    owner = ProcessIdentity.named(name)
    return "?" if owner is None else str(owner.pid)


def has_ended(name: str) -> bool:
    """Whether the process of this name has certainly ended."""
    owner = ProcessIdentity.named(name)
    return owner is None or is_gone(owner)


def boot_id() -> str:
    """The id of this boot."""
    return _line("/proc/sys/kernel/random/boot_id") or "-"


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "-"


def _started(pid: int) -> str | None:
    """The start time of a process in ticks since boot; None when it has ended, zombies included."""
    # The name is in parentheses and may hold any character; the fields after it are plain.
    fields = _line(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else None


def _line(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
