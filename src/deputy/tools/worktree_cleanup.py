"""Worktrees that stay behind a run: whether they hold work that is in no commit, and how git lets go of them."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

from deputy.tools.caches import is_cache
from deputy.tools.git import Git, GitFailed
from deputy.tools.interruptible import StopSignal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_UNKNOWN = ("?? ", "!! ")
"""How git's status marks what it was not given, and what it is told to ignore."""
_REMOVAL_SECONDS = 2.0


class WorktreeCleanup:
    """What can be asked of, and done with, worktrees that no run is at work in any more."""

    def __init__(self, environ: Mapping[str, str], seconds: float | None = None) -> None:
        """After so many seconds, from now on, nothing more is asked of git: all that is left may hold work."""
        self._environ = environ
        self._until = None if seconds is None else time.monotonic() + seconds

    def holds_work(self, folder: Path) -> bool:
        """Whether it holds what no commit has, well-known caches aside; also when that cannot be told in time."""
        if self._until is not None and time.monotonic() >= self._until:
            return True
        stop = StopSignal()
        try:
            git = Git(str(folder), self._environ, stop, until=self._until).hardened()
            if os.path.realpath(git.run("rev-parse", "--show-toplevel").removesuffix("\n")) != os.path.realpath(folder):
                return True
            # Files that were renamed stand with both names, so each is asked for by itself.
            listed = git.run("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--ignored")
        except GitFailed:
            return True
        finally:
            stop.close()
        return any(_is_work(line) for line in listed.split("\0") if line)

    def remove(self, folder: Path) -> None:
        """Take it away, so that git knows and its branch is free."""
        until = None if self._until is None else max(self._until, time.monotonic() + _REMOVAL_SECONDS)
        stop = StopSignal()
        try:
            git = Git(str(folder), self._environ, stop, until=until)
            common = git.run("rev-parse", "--path-format=absolute", "--git-common-dir").removesuffix("\n")
            outside = git.within(common)
            # Twice, as one that was killed while it was being made is locked.
            outside.run("worktree", "remove", "--force", "--force", "--", str(folder))
        except GitFailed:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            stop.close()


def _is_work(line: str) -> bool:
    """Whether a line of git's status tells of work."""
    return not (line.startswith(_UNKNOWN) and is_cache(line[3:]))
