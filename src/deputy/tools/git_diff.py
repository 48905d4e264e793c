"""The changes of a run's worktree or branch: a list of files, and the patch of one of them, within bounds."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.errors import DeputyError
from deputy.processes.child_process import StopSignal
from deputy.tools.git import OUTSIDE_SUBMODULES, Git, GitFailed
from deputy.tools.secret_files import is_withheld

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAFE = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--submodule=short", OUTSIDE_SUBMODULES)
MOST_FILES = 2000
MOST_PATCH = 1024 * 1024
"""Characters of the patch of one file that are shown."""


class ChangedFile(Struct, frozen=True, kw_only=True):
    """A changed file; no counts for a binary one."""

    path: str
    added: int | None
    removed: int | None
    is_withheld: bool = False
    """Whether the file usually holds secrets, so that it is not shown."""


class RunDiff(Struct, frozen=True, kw_only=True):
    """The changes of a run."""

    branch: str
    base: str
    files: tuple[ChangedFile, ...]
    more: int = 0
    """Changed files that are not listed."""


class FilePatch(Struct, frozen=True, kw_only=True):
    """The patch of one file."""

    path: str
    patch: str
    is_cut: bool = False


class DiffPlace(Struct, frozen=True, kw_only=True):
    """Where the changes of a run are: its worktree while that exists, else its branch in the repository."""

    folder: str
    base: str
    branch: str
    is_worktree: bool
    tip: str = ""
    """The last commit, if the repository has no such branch."""


def find_place(worktree: str, repository: str, base: str, branch: str) -> DiffPlace:
    """The place of the changes."""
    is_worktree = bool(worktree) and Path(worktree).is_dir()
    return DiffPlace(folder=worktree if is_worktree else repository, base=base, branch=branch, is_worktree=is_worktree)


def changed_files(place: DiffPlace, environ: Mapping[str, str]) -> RunDiff:
    """The changed files."""
    found = _all_files(place, environ)
    listed = tuple(found[:MOST_FILES])
    return RunDiff(branch=place.branch, base=place.base, files=listed, more=len(found) - len(listed))


def patch_of(place: DiffPlace, environ: Mapping[str, str], path: str) -> FilePatch:
    """The patch of one changed file; empty if the file is withheld, or is none of them."""
    # A folder would bring files with it that are withheld.
    if not any(file.path == path and not file.is_withheld for file in _all_files(place, environ)):
        return FilePatch(path=path, patch="")
    found = _git(place, environ, "--literal-pathspecs", "diff", *_SAFE, *_range(place), "--", path)
    return FilePatch(path=path, patch=found[:MOST_PATCH], is_cut=len(found) > MOST_PATCH)


def _all_files(place: DiffPlace, environ: Mapping[str, str]) -> list[ChangedFile]:
    rows = _git(place, environ, "diff", "--numstat", "-z", *_SAFE, *_range(place)).split("\0")
    return [_file(row) for row in rows if row.count("\t") >= 2]


def _range(place: DiffPlace) -> tuple[str, ...]:
    return (place.base,) if place.is_worktree else (place.base, place.tip or f"refs/heads/{place.branch}")


def _file(row: str) -> ChangedFile:
    added, removed, path = row.split("\t", 2)
    return ChangedFile(
        path=path,
        added=int(added) if added.isdigit() else None,
        removed=int(removed) if removed.isdigit() else None,
        is_withheld=is_withheld(path.split("/")),
    )


def _git(place: DiffPlace, environ: Mapping[str, str], *arguments: str) -> str:
    with closing(StopSignal()) as stop:
        try:
            return Git(place.folder, environ, stop).hardened().run(*arguments)
        except GitFailed as error:
            raise DeputyError(f"git failed: {error}") from error
