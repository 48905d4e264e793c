"""The run that a process was started by: found among its parent processes, then in its environment."""

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
"""How the path of a supervisor's script ends, in whatever installation."""
_SESSION = "sess_"
_MOST_PARENTS = 4096


class Supervisor(Struct, frozen=True, kw_only=True):
    """What supervises this process: for which run, and where the journal of that run is."""

    run: str
    """The session id; empty for a program that no single run started, as an MCP server."""
    home: str
    """The home of the Deputy that started it; empty where that is not known."""
    pid: int = 0
    """The supervisor's process; 0 where only the environment says so."""


def below_run(environment: Mapping[str, str] | None = None) -> Supervisor | None:
    """The nearest supervisor above this process; None when no Deputy started it.

    A child cannot change who its parents are, so they count first; its environment is what else is known.
    """
    for pid in _parents(os.getpid()):
        if (found := _supervisor(pid)) is not None:
            return found
    known = os.environ if environment is None else environment
    owner, colon, _ = known.get(TAG, "").partition(":")
    return Supervisor(run=run_of(owner), home=known.get(HOME_VARIABLE, "")) if colon else None


def supervisor_arguments(owner: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """What a supervisor's command line says of the run it works for: its id and its home."""
    return run_of(owner), environment.get(HOME_VARIABLE, "")


def run_of(owner: str) -> str:
    """The run that an owner of processes is; empty when it is none."""
    return owner if owner.startswith(_SESSION) else ""


def _parents(pid: int) -> Iterator[int]:
    """The processes above one, the nearest first."""
    for _ in range(_MOST_PARENTS):
        try:
            # The name, which may hold anything, stands between parentheses; the fields after it are plain.
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            return
        if pid <= 0:
            return
        yield pid


def _supervisor(pid: int) -> Supervisor | None:
    """What a process supervises, by its command line: `python -I -S warden.py LEASH RUN HOME PROGRAM …`."""
    try:
        words = [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    except OSError:
        return None
    match words:
        case [_, "-I", "-S", script, _, run, home, _, *_] if script.endswith(REAPER_END):
            return Supervisor(run=run, home=home, pid=pid)
        case _:
            return None
