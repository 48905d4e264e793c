"""Worktrees that stay behind a run: whether they hold work that is in no commit, and how git lets go of them."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from deputy.tools.git import Git, GitFailed
from deputy.tools.interruptible import Stop

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CACHES = frozenset(
    {
        ".DS_Store",
        ".cache",
        ".gradle",
        ".hypothesis",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
        "venv",
    }
)
"""What programs leave behind and make again: nobody's work, where git ignores it."""
_IGNORED = "!! "


class KeptWork:
    """What can be asked of, and done with, a worktree that no run is at work in any more."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def is_in(self, folder: Path) -> bool:
        """Whether it holds what no commit has, well-known caches aside; also when that cannot be told."""
        stop = Stop()
        try:
            git = Git(str(folder), self._environ, stop).hardened()
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
        stop = Stop()
        try:
            git = Git(str(folder), self._environ, stop)
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
    if not line.startswith(_IGNORED):
        return True
    path = line.removeprefix(_IGNORED)
    return not path.endswith(".pyc") and CACHES.isdisjoint(path.split("/"))
