"""Who is at work on a run: a process, told apart from every other that ever had its number."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct


class ProcessIdentity(Struct, frozen=True, kw_only=True):
    """A process: its number, when it started, in which boot and in which space of process numbers."""

    boot: str
    space: str
    pid: int
    started: str
    nonce: str = ""

    @property
    def name(self) -> str:
        """The owner as one word, which is how the journal has it."""
        return "/".join((self.boot, self.space, str(self.pid), self.started, self.nonce))

    @classmethod
    def named(cls, name: str) -> ProcessIdentity | None:
        """The owner of this name; None when it is not a name."""
        parts = name.split("/")
        if len(parts) != 5 or not parts[2].isdecimal():
            return None
        boot, space, pid, started, nonce = parts
        return cls(boot=boot, space=space, pid=int(pid), started=started, nonce=nonce)


def this_process() -> ProcessIdentity:
    """The owner that this process is; each call is one of its own."""
    return ProcessIdentity(
        boot=boot_id(),
        space=_space(),
        pid=os.getpid(),
        started=_started(os.getpid()) or "0",
        nonce=os.urandom(4).hex(),
    )


def is_gone(owner: ProcessIdentity) -> bool:
    """Whether that process surely does not run any more; what cannot be seen from here may still run."""
    if owner.boot != boot_id():
        return True
    return owner.space == _space() and _started(owner.pid) != owner.started


def boot_id() -> str:
    """What names this start of the machine."""
    return _line("/proc/sys/kernel/random/boot_id") or "-"


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "-"


def _started(pid: int) -> str | None:
    """When a process started, in ticks since boot; None when there is none, or only its remains."""
    # The name, which may hold anything, stands between parentheses; the fields after it are plain.
    fields = _line(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else None


def _line(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
