"""Remove the worktrees of ended runs, unless they have uncommitted work."""

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
"""Marks of untracked and ignored files in `git status --porcelain`."""
_REMOVAL_SECONDS = 2.0


class WorktreeCleanup:
    """Checks and removes worktrees of ended runs."""

    def __init__(self, environ: Mapping[str, str], seconds: float | None = None) -> None:
        """After this many seconds git is not asked any more, and every worktree counts as having work."""
        self._environ = environ
        self._until = None if seconds is None else time.monotonic() + seconds

    def holds_work(self, folder: Path) -> bool:
        """Whether it has uncommitted files other than caches; true also when git fails or the time is up."""
        if self._until is not None and time.monotonic() >= self._until:
            return True
        stop = StopSignal()
        try:
            git = Git(str(folder), self._environ, stop, until=self._until).hardened()
            if os.path.realpath(git.run("rev-parse", "--show-toplevel").removesuffix("\n")) != os.path.realpath(folder):
                return True
            # A renamed file would be one entry with two names.
            listed = git.run("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--ignored")
        except GitFailed:
            return True
        finally:
            stop.close()
        return any(_is_work(line) for line in listed.split("\0") if line)

    def remove(self, folder: Path) -> None:
        """Remove it, so that git knows and its branch is free."""
        until = None if self._until is None else max(self._until, time.monotonic() + _REMOVAL_SECONDS)
        stop = StopSignal()
        try:
            git = Git(str(folder), self._environ, stop, until=until)
            common = git.run("rev-parse", "--path-format=absolute", "--git-common-dir").removesuffix("\n")
            outside = git.within(common)
            # `--force` twice, because a worktree whose creation was killed is locked.
            outside.run("worktree", "remove", "--force", "--force", "--", str(folder))
        except GitFailed:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            stop.close()


def _is_work(line: str) -> bool:
    return not (line.startswith(_UNKNOWN) and is_cache(line[3:]))
