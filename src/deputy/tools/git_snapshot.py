"""A snapshot of a workspace: a commit of its files, made without touching its repository or running its commands."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from deputy.core.errors import WorkspaceError
from deputy.tools.git import Git, GitFailed
from deputy.tools.secret_files import is_withheld
from deputy.tools.tool_text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from deputy.processes.child_process import StopSignal

MAX_BYTES = 200_000_000
"""The usual limit of a workspace, in bytes of its files."""
LISTED_BYTES = 256 * 1024 * 1024
_SUBMODULE = "160000"
_NAMED = 5
_DATE = "946684800 +0000"
_OWN_INDEX = {"core.splitIndex": "false", "core.fsync": "none", "index.threads": "1"}
"""A split index would be written into the user's repository."""


class SourceRepository(Struct, frozen=True, kw_only=True):
    """The repository around a workspace, or the workspace itself if it is in none."""

    id: str
    top: str
    folder: str
    """The workspace below the top."""
    head: str = ""
    objects: str = ""
    """The user's objects; empty without a repository."""
    index: str = ""
    object_format: str = "sha1"


class SnapshotTree(Struct, frozen=True, kw_only=True):
    """The files of a workspace as a tree in an object folder of ours."""

    tree: str
    left_out: tuple[str, ...]


def find_source(root: str, environ: Mapping[str, str], stop: StopSignal) -> SourceRepository:
    """The repository around a workspace; a folder without one is its own."""
    directory = os.path.realpath(root)
    git = Git(directory, environ, stop)
    plain = SourceRepository(id=_id_of(f"{_machine()}\0{directory}"), top=directory, folder="")
    try:
        asked = ("--show-toplevel", "--git-common-dir", "--git-path", "index", "--git-path", "objects")
        found = git.run("rev-parse", "--path-format=absolute", *asked, "--show-object-format").splitlines()
    except GitFailed as error:
        # A repository without files of its own has none to send.
        if "not a git repository" in str(error) or "must be run in a work tree" in str(error):
            return plain
        raise
    if len(found) != len(asked) - 1:
        raise WorkspaceError(f"The path of {directory!r} has a line break", "Rename the folder, then try again.")
    top, common, index, objects, object_format = found
    folder = os.path.relpath(directory, top)
    # A repository can set another folder as its worktree.
    if folder.startswith(".."):
        return plain
    head = ""
    with suppress(GitFailed):
        head = git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip()
    address = _address(git) or f"{_machine()}\0{os.path.realpath(common)}"
    return SourceRepository(
        id=_id_of(f"{address}\0{object_format}"),
        top=top,
        folder="" if folder == "." else folder,
        head=head,
        objects=objects,
        index=index,
        object_format=object_format,
    )


def take_tree(
    source: SourceRepository,
    into: Path,
    environ: Mapping[str, str],
    stop: StopSignal,
    *,
    max_bytes: int = MAX_BYTES,
    private: Sequence[Path] = (),
) -> SnapshotTree:
    """Write the files into the objects of a bare repository of ours: tracked and untracked, not ignored or withheld."""
    with TemporaryDirectory(prefix="index-", dir=into.parent) as temporary:
        index = f"{temporary}/index"
        variables = {"GIT_INDEX_FILE": index, "GIT_OBJECT_DIRECTORY": f"{into}/objects"}
        if source.objects:
            variables["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = quoted_path(source.objects)
            # The user's index knows which files are unchanged.
            with suppress(FileNotFoundError):
                shutil.copyfile(source.index, index)
        else:
            variables |= {"GIT_DIR": str(into), "GIT_WORK_TREE": source.top}
        # Filters of the user would store files elsewhere, as git-lfs does.
        git = Git(source.top, environ, stop, variables=variables).hardened(also_users=True)
        return _tree(git, source, max_bytes, [os.path.realpath(path) for path in private])


def commit_tree(git: Git, tree: str, *parents: str) -> str:
    """A commit with this tree; equal trees and parents give equal commits."""
    dated = git.using(GIT_AUTHOR_DATE=_DATE, GIT_COMMITTER_DATE=_DATE)
    named = [part for parent in parents for part in ("-p", parent)]
    return dated.run("commit-tree", *named, "-m", "Workspace", tree).strip()


def quoted_path(path: str) -> str:
    """A path in a list that git splits at colons."""
    if ":" not in path and not path.startswith('"'):
        return path
    text = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _tree(git: Git, source: SourceRepository, max_bytes: int, private: Sequence[str]) -> SnapshotTree:
    options = [part for key, value in _OWN_INDEX.items() for part in ("-c", f"{key}={value}")]
    staged = _staged(git.run(*options, "ls-files", "-z", "--stage", most=LISTED_BYTES))
    others = _names(git.run(*options, "ls-files", "-z", "--others", "--exclude-standard", most=LISTED_BYTES))
    differing = ("diff-files", "-z", "--name-only", "--no-ext-diff", "--ignore-submodules=all")
    changed = _names(git.run(*options, *differing, most=LISTED_BYTES)) if staged else []
    own = [f"{os.path.relpath(path, source.top)}/" for path in private]
    hidden = {name for name in (*staged, *others) if _is_hidden(name, own)}
    new = [name for name in others if not name.endswith("/") and name not in hidden]
    _check_size(source.top, [*(name for name in staged if name not in hidden), *new], max_bytes)
    taken = [name for name in changed if name not in hidden and staged.get(name) != _SUBMODULE]
    is_there = _presence(source.top)
    update = (*options, "update-index", "-z")
    if gone := [*(name for name in staged if name in hidden), *(name for name in taken if not is_there(name))]:
        git.run(*update, "--force-remove", "--stdin", given=_given(gone))
    if put := [*filter(is_there, taken), *new]:
        git.run(*update, "--add", "--remove", "--replace", "--stdin", given=_given(put))
    left_out = [*(name for name, mode in staged.items() if mode == _SUBMODULE), *(n for n in others if n.endswith("/"))]
    return SnapshotTree(tree=git.run(*options, "write-tree").strip(), left_out=tuple(sorted(left_out)))


def _presence(top: str) -> Callable[[str], bool]:
    """A predicate: whether a file exists, and not behind a symbolic link, where git does not look."""

    @cache
    def is_own(folder: str) -> bool:
        return os.path.realpath(f"{top}/{folder}") == os.path.normpath(f"{top}/{folder}")

    return lambda name: os.path.lexists(f"{top}/{name}") and is_own(name.rpartition("/")[0])


def _staged(listed: str) -> dict[str, str]:
    """The mode of each file in the index."""
    rows = (row.split("\t", 1) for row in listed.split("\0") if row)
    return {name: mode.partition(" ")[0] for mode, name in rows}


def _names(listed: str) -> list[str]:
    return list(dict.fromkeys(name for name in listed.split("\0") if name))


def _given(names: Iterable[str]) -> str:
    return "".join(f"{name}\0" for name in names)


def _is_hidden(name: str, own: Sequence[str]) -> bool:
    """Whether a file may hold secrets, or is of Deputy's home."""
    return is_withheld(name.rstrip("/").split("/")) or any(f"{name}/".startswith(path) for path in own)


def _check_size(top: str, names: Iterable[str], max_bytes: int) -> None:
    sizes: dict[str, int] = {}
    for name in names:
        with suppress(OSError):
            sizes[name] = os.lstat(os.path.join(top, name)).st_size  # noqa: PTH118  twice as fast
    total = sum(sizes.values())
    if total <= max_bytes:
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_NAMED]
    named = ", ".join(f"{one_line(name)} ({_megabytes(sizes[name])})" for name in largest)
    raise WorkspaceError(
        f"The workspace {top} has {_megabytes(total)} in {len(sizes):,} files that git does not ignore, and the limit"
        f" is {_megabytes(max_bytes)}; the largest are {named}",
        "Name what is not needed in .gitignore, raise `max_bytes` below [workspace] in ~/.config/deputy/config.toml,"
        ' or set its `mode = "shared"` with a volume that all workers have. Nothing was sent.',
    )


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:,.1f} MB"


def _address(git: Git) -> str:
    """The address of `origin` without user and password, so that clones of one repository share an id."""
    try:
        url = git.run("config", "--get", "remote.origin.url").strip()
    except GitFailed:
        return ""
    try:
        parts = urlsplit(url)
        host = f"{parts.hostname or ''}:{parts.port or ''}" if parts.scheme else ""
    except ValueError:
        return ""
    # A path means another repository on another machine.
    return f"{host}/{parts.path.strip('/').removesuffix('.git')}" if host and parts.hostname else _short_form(url)


def _short_form(url: str) -> str:
    """`git@host:path` as an address; empty for a path."""
    before, colon, path = url.partition(":")
    if not colon or "/" in before:
        return ""
    return f"{before.rpartition('@')[2]}:/{path.strip('/').removesuffix('.git')}"


def _machine() -> str:
    with suppress(OSError):
        return Path("/etc/machine-id").read_text().strip()
    return os.uname().nodename


def _id_of(text: str) -> str:
    return blake2b(os.fsencode(text), digest_size=16).hexdigest()
