"""Find the run that started this process: by its parent processes, then by its environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.processes.orphans import TAG

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HOME_VARIABLE = "DEPUTY_HOME"
REAPER_END = "/deputy/processes/reaper.py"
"""The end of the path of the supervisor script, in any installation."""
_SESSION = "sess_"
_MOST_PARENTS = 4096


_PROC_MAGIC = 0x9FA0
"""The type of a procfs, in the first field of `struct statfs`."""
_STATFS_BYTES = 256


class AncestryUnknown(Exception):
    """The parent processes cannot be read."""


class Supervisor(Struct, frozen=True, kw_only=True):
    """A supervisor above this process: its run and the home of that run's journal."""

    run: str
    """The session id; empty for a program of no single run, such as an MCP server."""
    home: str
    """The home of the Deputy that started it; empty if unknown."""
    pid: int = 0
    """The supervisor's process; 0 if only the environment names it."""


def below_run(environment: Mapping[str, str] | None = None) -> Supervisor | None:
    """The nearest supervisor above this process; None when no Deputy started it.

    Parents are checked first, because a child cannot change them; the environment is the fallback. A process that
    hides its parents behind another /proc or a PID namespace without one raises AncestryUnknown.
    """
    if not _shows_this_process(Path("/proc")):
        raise AncestryUnknown("Deputy cannot read its parent processes: /proc must be the procfs of this process.")
    for pid in _parents(os.getpid()):
        if (found := _supervisor(pid)) is not None:
            return found
    known = os.environ if environment is None else environment
    owner, colon, _ = known.get(TAG, "").partition(":")
    return Supervisor(run=run_of(owner), home=known.get(HOME_VARIABLE, "")) if colon else None


def supervisor_arguments(owner: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """The arguments of a supervisor that name its run and home."""
    return run_of(owner), environment.get(HOME_VARIABLE, "")


def run_of(owner: str) -> str:
    """The owner of a process, if it is a run; else empty."""
    return owner if owner.startswith(_SESSION) else ""


def _shows_this_process(proc: Path) -> bool:
    """Whether a folder is a procfs of this process's own PID namespace."""
    import ctypes

    status = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None).statfs(os.fsencode(proc), status) != 0:
        return False
    if ctypes.c_long.from_buffer(status).value != _PROC_MAGIC:
        return False
    try:
        return (proc / "self").readlink() == Path(str(os.getpid())) and next(_parents(os.getpid()), 0) == os.getppid()
    except OSError:
        return False


def _parents(pid: int) -> Iterator[int]:
    """The parent processes, nearest first."""
    for _ in range(_MOST_PARENTS):
        try:
            # The name is in parentheses and may hold any character; the fields after it are plain.
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            return
        if pid <= 0:
            return
        yield pid


def _supervisor(pid: int) -> Supervisor | None:
    """The supervisor with this command line: `python -I -S reaper.py LEASH RUN HOME PROGRAM …`."""
    try:
        words = [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    except OSError:
        return None
    match words:
        case [_, "-I", "-S", script, _, run, home, _, *_] if script.endswith(REAPER_END):
            return Supervisor(run=run, home=home, pid=pid)
        case _:
            return None
