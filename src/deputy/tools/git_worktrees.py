"""A git worktree per run, below the home: made from HEAD, found again after a crash, committed to a branch."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import DecodeError, Struct, ValidationError, json

from deputy.core.errors import WorkspaceError
from deputy.engine.ports import NoWorktree, Worktree, WorktreeChanges
from deputy.processes.child_process import StopSignal, interruptible
from deputy.tools.git import OUTSIDE_SUBMODULES, Git, GitFailed, GitStopped
from deputy.tools.tool_text import one_line, safe_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OWN_BRANCHES = "deputy/"
"""The beginning of the names of all branches that runs make."""
_LABEL_LENGTH = 32
_TITLE_LENGTH = 200
_MOST_CHANGED = 1000
_UNKNOWN = ("?? ", "!! ")
"""Marks of untracked and ignored files in `git status --porcelain`."""
_REMOVAL_SECONDS = 2.0
_CACHE_FOLDERS = frozenset(
    {
        ".cache",
        ".gradle",
        ".hypothesis",
        ".mypy_cache",
        ".nox",
        ".parcel-cache",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
        "venv",
    }
)
_CACHE_FILES = (".DS_Store", ".pyc")


class _Beginning(Struct, frozen=True, kw_only=True):
    """Stored beside a worktree, because a branch does not record its base commit."""

    branch: str
    base: str


class GitWorktrees:
    """Makes the worktrees of runs below a folder."""

    must_isolate = False

    def __init__(
        self,
        folder: Path,
        workspace: Path,
        environ: Mapping[str, str],
        safe_id: Callable[[str], str],
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`variables` are git's own."""
        self._folder = folder
        self._workspace = workspace
        self._environ = environ
        self._safe_id = safe_id
        self._variables = variables
        # git fails on a held lock instead of waiting.
        self._turn = asyncio.Lock()

    async def open(self, run: str, label: str, root: str, base: str = "") -> Worktree | NoWorktree:
        """Make the worktree of a run from a commit or HEAD of the repository around `root`, or find it again."""
        if shutil.which("git", path=self._environ.get("PATH")) is None:
            return NoWorktree(reason="git is not installed")
        try:
            async with self._turn:
                return await interruptible(partial(self._opened, run, label, root or str(self._workspace), base))
        except (GitFailed, OSError) as error:
            return NoWorktree(reason=f"no worktree could be made: {one_line(str(error))}")

    async def locate(self, root: str) -> str:
        """The folder as it was recorded: callers are on this machine."""
        return root

    async def restore(self, run: str, place: Worktree) -> Worktree:
        """The worktree as it was recorded: runs of this machine stay on it."""
        if not await asyncio.to_thread(self._is_own, place):
            raise WorkspaceError(
                f"The worktree of {run}, {place.folder}, is not on {os.uname().nodename}",
                f"Resume it on the machine that has it, or begin anew: the branch is {place.branch}.",
            )
        return place

    def _is_own(self, place: Worktree) -> bool:
        """Whether a recorded worktree is one of this machine: a store is shared, and its records may be bad."""
        folder = os.path.realpath(place.folder)
        is_below = os.path.dirname(folder) == os.path.realpath(self._folder)  # noqa: PTH120
        return is_below and place.branch.startswith(OWN_BRANCHES) and os.path.isdir(folder)  # noqa: PTH112

    async def close(self, place: Worktree, title: str, named: Sequence[str] = ()) -> WorktreeChanges:
        """Commit the changes, and ignored files only if they are named; remove an unchanged worktree."""
        try:
            async with self._turn:
                return await interruptible(partial(self._closed, place, title, named))
        except (GitFailed, OSError) as error:
            warning = f"The changes in {place.folder} could not be committed: {one_line(str(error))}"
            return WorktreeChanges(branch=place.branch, warning=warning)

    def _opened(self, run: str, label: str, root: str, base: str, stop: StopSignal) -> Worktree | NoWorktree:
        directory = os.path.realpath(root)
        git = Git(directory, self._environ, stop, variables=self._variables)
        try:
            top = git.run("rev-parse", "--show-toplevel").removesuffix("\n")
        except GitFailed as error:
            if "not a git repository" in str(error):
                return NoWorktree(reason="the workspace is not in a git repository")
            raise
        # A repository can set another folder as its worktree.
        prefix = os.path.relpath(directory, top)
        if prefix.startswith(".."):
            return NoWorktree(reason="the repository's settings put its files in another folder")
        git = git.hardened()
        try:
            head = git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip()
        except GitFailed:
            return NoWorktree(reason="the repository has no commit yet")
        # Tools refuse symlinks out of the worktree, so its path must have none.
        folder = Path(os.path.realpath(self._folder)) / self._safe_id(run)
        beginning = _read(folder) or _Beginning(branch=branch_name(label, run), base=base or head)
        if not _is_there(git, folder):
            _make(git, folder, beginning)
        _unlock(git.within(str(folder)), folder, beginning.branch)
        place = Path(os.path.normpath(folder / prefix))
        place.mkdir(parents=True, exist_ok=True)
        is_behind = bool(git.run("status", "--porcelain", "-z", "--untracked-files=normal", OUTSIDE_SUBMODULES))
        return Worktree(
            root=str(place), folder=str(folder), branch=beginning.branch, base=beginning.base, is_behind=is_behind
        )

    def _closed(self, place: Worktree, title: str, named: Sequence[str], stop: StopSignal) -> WorktreeChanges:
        if not self._is_own(place):
            return WorktreeChanges()
        git = Git(place.folder, self._environ, stop, variables=self._variables).hardened()
        _unlock(git, Path(place.folder), place.branch)
        git.run("add", "--all")
        _add_ignored(git, place, named)
        if git.run("diff", "--cached", "--name-only", "-z", "--no-ext-diff", "--no-textconv"):
            message = one_line(title)[:_TITLE_LENGTH] or "Work of a subagent"
            git.run("commit", "--quiet", "--no-verify", "--no-gpg-sign", "--cleanup=verbatim", "-m", message)
        head = git.run("rev-parse", "HEAD").strip()
        if head == place.base:
            if _has_others(git):
                warning = f"The new files are ignored by git and in no commit; they are in {place.folder}."
                return WorktreeChanges(branch=place.branch, warning=warning)
            _remove(git, place)
            return WorktreeChanges()
        # The run may have changed to another branch; its commits still belong to this one.
        git.run("update-ref", f"refs/heads/{place.branch}", head)
        names = git.run("diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", place.base, head)
        prefix = os.path.relpath(place.root, place.folder)
        changed = [os.path.relpath(name, prefix) for name in names.split("\0") if name]
        return WorktreeChanges(changed=tuple(changed[:_MOST_CHANGED]), branch=place.branch)


def untouched(
    worktrees: Path, environ: Mapping[str, str], root: str, paths: Sequence[str], stop: StopSignal
) -> Callable[[str], bool]:
    """A predicate: whether a file of a worktree, at or below these paths, is equal to its base commit.

    If git fails it is true, as a file that git does not know is in no branch; for a folder that is no worktree, false.
    """
    top = os.path.realpath(worktrees)
    name, _, prefix = os.path.relpath(os.path.realpath(root), top).partition("/")
    beginning = None if name in ("", ".", "..") else _read(Path(top) / name)
    if beginning is None or not paths:
        return lambda path: False
    names = [os.path.normpath(f"{prefix or '.'}/{path}") for path in paths]
    try:
        git = Git(f"{top}/{name}", environ, stop).hardened()
        known = git.run("ls-tree", "-r", "-z", "--name-only", beginning.base, "--", *names)
        # Compare files, not the index: a file that was only rewritten is equal.
        quiet = ("--literal-pathspecs", "-c", "diff.autoRefreshIndex=true")
        plain = ("--name-only", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", "--diff-filter=d")
        differing = git.run(*quiet, "diff", *plain, beginning.base, "--", *names)
    except GitFailed:
        return lambda path: True
    same = set(known.split("\0")) - set(differing.split("\0"))
    return lambda path: os.path.normpath(f"{prefix or '.'}/{path}") in same


def _is_there(git: Git, folder: Path) -> bool:
    """Whether there is a complete worktree of this repository; an incomplete one is removed."""
    if not folder.is_dir():
        return False
    try:
        there = git.within(str(folder))
        there.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        top = there.run("rev-parse", "--show-toplevel").removesuffix("\n")
        # git writes the index after the files: without it, missing files would count as deleted.
        has_index = (_own(there) / "index").exists()
        is_whole = has_index and top == str(folder) and _common(there) == _common(git)
    except GitStopped:
        raise
    except GitFailed:
        is_whole = False
    if not is_whole:
        shutil.rmtree(folder)
    return is_whole


def _make(git: Git, folder: Path, beginning: _Beginning) -> None:
    _prepare(folder, beginning)
    with suppress(GitFailed):
        # A worktree whose creation was killed stays locked.
        git.run("worktree", "unlock", "--", str(folder))
    try:
        git.run("rev-parse", "--verify", "--quiet", f"refs/heads/{beginning.branch}")
        what = ("--", str(folder), beginning.branch)
    except GitFailed:
        what = ("-b", beginning.branch, "--", str(folder), beginning.base)
    # A folder that is gone may still be registered. All others stay: those of other machines are not seen from here.
    git.run("worktree", "add", "--quiet", "--force", *what)


def _add_ignored(git: Git, place: Worktree, named: Sequence[str]) -> None:
    prefix = os.path.relpath(place.root, place.folder)
    paths = [os.path.normpath(f"{prefix}/{path.removeprefix(f'{place.root}/')}") for path in named[:_MOST_CHANGED]]
    inside = [path for path in paths if not path.startswith(("/", "../")) and _is_file(Path(place.folder) / path)]
    if not inside:
        return
    left = git.run("--literal-pathspecs", "ls-files", "--others", "-z", "--", *inside)
    if ignored := [path for path in left.split("\0") if path]:
        git.run("--literal-pathspecs", "add", "--force", "--", *ignored)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _has_others(git: Git) -> bool:
    """Whether there are untracked files other than caches."""
    found = git.run("ls-files", "--others", "--directory", "--no-empty-directory", "-z").split("\0")
    return any(path and not _is_cache(path) for path in found)


def _remove(git: Git, place: Worktree) -> None:
    outside = git.within(_common(git))
    outside.run("worktree", "remove", "--force", "--", place.folder)
    outside.run("branch", "--quiet", "-D", "--", place.branch)
    _kept_beside(Path(place.folder)).unlink(missing_ok=True)


def _common(git: Git) -> str:
    """The git directory that all worktrees of a repository share."""
    return os.path.realpath(git.run("rev-parse", "--path-format=absolute", "--git-common-dir").removesuffix("\n"))


def _own(git: Git) -> Path:
    return Path(git.run("rev-parse", "--path-format=absolute", "--git-dir").removesuffix("\n"))


def _unlock(git: Git, folder: Path, branch: str) -> None:
    """Remove the locks that a killed git left; only this run works here, so no live process holds them."""
    own = _own(git)
    try:
        belongs_to = os.path.realpath(own / (own / "gitdir").read_text().removesuffix("\n"))
    except (OSError, ValueError):
        return
    # The agent may have rewritten `.git` to point to another repository.
    if belongs_to != os.path.realpath(folder / ".git"):
        return
    for left in (own / "index.lock", own / "HEAD.lock", Path(_common(git)) / "refs/heads" / f"{branch}.lock"):
        left.unlink(missing_ok=True)


def branch_name(label: str, run: str) -> str:
    """The branch of a run: a name that git accepts, for any label."""
    safe = safe_name(label[:_LABEL_LENGTH], "-").strip("-_")
    unique = safe_name(run.removeprefix("sess_"), "-")[:64]
    return f"{OWN_BRANCHES}{safe or 'task'}-{unique}"


def prepare(folder: Path, branch: str, base: str) -> None:
    """Note the branch and the base of a worktree before it is made."""
    _prepare(folder, _Beginning(branch=branch, base=base))


def remove_kept(place: Worktree, environ: Mapping[str, str], variables: Mapping[str, str], stop: StopSignal) -> None:
    """Remove a worktree whose branch is stored elsewhere; its branch stays."""
    with suppress(GitFailed):
        git = Git(place.folder, environ, stop, variables=variables).hardened()
        git.within(_common(git)).run("worktree", "remove", "--force", "--", place.folder)
        _kept_beside(Path(place.folder)).unlink(missing_ok=True)


def _prepare(folder: Path, beginning: _Beginning) -> None:
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    folder.parent.chmod(0o700)
    kept = _kept_beside(folder)
    descriptor = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(json.encode(beginning))


def _read(folder: Path) -> _Beginning | None:
    try:
        return json.decode(_kept_beside(folder).read_bytes(), type=_Beginning)
    except (OSError, DecodeError, ValidationError):
        return None


def _kept_beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")


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
        with closing(StopSignal()) as stop, suppress(GitFailed):
            git = Git(str(folder), self._environ, stop, until=self._until).hardened()
            if os.path.realpath(git.run("rev-parse", "--show-toplevel").removesuffix("\n")) == os.path.realpath(folder):
                # A renamed file would be one entry with two names.
                listed = git.run("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--ignored")
                return any(_is_work(line) for line in listed.split("\0") if line)
        return True

    def remove(self, folder: Path) -> None:
        """Remove it, so that git knows and its branch is free."""
        until = None if self._until is None else max(self._until, time.monotonic() + _REMOVAL_SECONDS)
        with closing(StopSignal()) as stop:
            try:
                git = Git(str(folder), self._environ, stop, until=until)
                # `--force` twice, because a worktree whose creation was killed is locked.
                git.within(_common(git)).run("worktree", "remove", "--force", "--force", "--", str(folder))
            except GitFailed:
                shutil.rmtree(folder, ignore_errors=True)


def _is_work(line: str) -> bool:
    return not (line.startswith(_UNKNOWN) and _is_cache(line[3:]))


def _is_cache(path: str) -> bool:
    """Whether a path from git's output (folders end in a slash) belongs to a cache."""
    *folders, name = path.split("/")
    return not _CACHE_FOLDERS.isdisjoint(folders) or name.endswith(_CACHE_FILES)
