"""The workspace: whatever a tool opens is opened beneath its root, by descriptors that no symlink race can move."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from deputy.core.request import Grant
from deputy.tools.openat2 import open_directory_beneath, open_plain
from deputy.tools.secret_files import is_unwritable, is_withheld
from deputy.tools.tool_error import ToolError
from deputy.tools.truncate import shown_path

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO would block the open for ever; a terminal could become ours.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SEEN = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC
SMALL_FILE_BYTES = 64 * 1024
_MOST_LINKS = 40
_MOST_STEPS = 400
_LEADS_OUT = "it leads out of the workspace through a symlink"


class WorkspacePath:
    """Where a path leads: a name in an open directory that is not a symlink, or that does not exist yet."""

    def __init__(self, directory: int, name: str, parts: Sequence[str]) -> None:
        self.directory = directory
        self.name = name
        self.parts = tuple(parts)
        self.path = "/".join(parts) or "."
        self.status = self.stat()

    def open_file(self) -> BinaryIO:
        """The regular file here; whatever else it is, is named and not opened."""
        self.expect_file()
        descriptor = os.open(self.name, _FILE, dir_fd=self.directory)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ToolError(f"{shown_path(self.path)} changed while it was being opened.")
        return os.fdopen(descriptor, "rb")

    def open_directory(self) -> int:
        """A descriptor of the directory here, which the caller closes."""
        return os.open(self.name, _DIRECTORY, dir_fd=self.directory)

    def expect_file(self) -> os.stat_result:
        """The status of the regular file here; a failure says what there is instead."""
        if self.status is None:
            raise ToolError(f"{shown_path(self.path)} does not exist.")
        if not stat.S_ISREG(self.status.st_mode):
            remedy = "; use Glob to see what is in it" if stat.S_ISDIR(self.status.st_mode) else ""
            raise ToolError(f"{shown_path(self.path)} is {kind(self.status.st_mode)}, not a file{remedy}.")
        return self.status

    def parts_of(self, name: bytes) -> tuple[str, ...]:
        """The parts of what a search from here names; a file has nothing below it."""
        if not self.is_directory:
            return self.parts
        return (*self.parts, *(part for part in os.fsdecode(name).split("/") if part != "."))

    @property
    def is_directory(self) -> bool:
        """Whether there is a directory here."""
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)

    def stat(self) -> os.stat_result | None:
        """The status of what is here now; the last name is never followed."""
        try:
            return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return None


class Workspace:
    """A directory and what of it is granted. No path leads out of it, or to what is withheld."""

    def __init__(
        self,
        root: Path | str,
        grant: Grant | None = None,
        *,
        private: Sequence[Path | str] = (),
        main: Path | str | None = None,
        uses_openat2: bool = True,
    ) -> None:
        self.root = os.path.realpath(root)
        self._main = self.root if main is None else os.path.realpath(main)
        self.grant = Grant() if grant is None else grant
        self._spellings = {self.root, str(Path.cwd() / root)}
        self._private = tuple(_split(os.path.relpath(os.path.realpath(path), self.root)) for path in private)
        self._uses_openat2 = uses_openat2

    @property
    def is_whole(self) -> bool:
        """Whether all of it is granted."""
        return self.grant.covers(".")

    def whole(self) -> Workspace:
        """The same directory with all of it granted; what is withheld stays withheld."""
        whole = copy(self)
        whole.grant = Grant(work_folder=self.grant.work_folder)
        return whole

    @contextmanager
    def open_root(self) -> Generator[int]:
        """A descriptor of the root, for as long as the block lasts."""
        with _opened(self.root) as root:
            yield root

    @contextmanager
    def place(self, path: str, *, make_parents: bool = False, for_writing: bool = False) -> Generator[WorkspacePath]:
        """Where a path leads, for as long as the block lasts."""
        with _shown_path(path), ExitStack() as closing, self.open_root() as root:
            parts = self._parts(path, root)
            self._check(path, parts, for_writing)
            top = closing.enter_context(_opened(self._main)) if self._is_shared(parts) else root
            found = self._quickly(top, parts, closing) or self._carefully(top, parts, make_parents, closing)
            self._check(path, found.parts, for_writing)
            if top != root and not self._is_shared(found.parts):
                raise ToolError(f"{shown_path(path)}: it leads out of {self.grant.work_folder} through a symlink.")
            yield found

    def top_of(self, path: str) -> str:
        """The directory that a path is read from: the root, or where the artifacts of all worktrees go."""
        return self._main if self._is_shared(_split(path)) else self.root

    def _is_shared(self, parts: Sequence[str]) -> bool:
        """Whether a path lies in the folder that artifacts go to, which a worktree has none of its own of."""
        return self._main != self.root and self.grant.is_shared("/".join(parts))

    def read_small(self, path: str) -> tuple[str, bytes] | None:
        """A small file that the kernel has in memory, without waiting: its path and content. None: go the long way."""
        parts = [] if path.startswith("/") or "\0" in path else _split(path)
        if not (self._uses_openat2 and parts) or ".." in parts or self._is_shared(parts) or not self.shows(parts):
            return None
        name = "/".join(parts)
        place = f"{self.root}/{name}"
        with suppress(OSError):
            # Looked at first, since opening a device may do something.
            size = _size(open_plain(place, _SEEN))
            content = None if size is None else _content(open_plain(place, _FILE), size)
            return None if content is None else (name, content)
        return None

    def shows(self, parts: Sequence[str]) -> bool:
        """Whether a path below the root, free of links, may be named to the agent."""
        return not is_withheld(parts) and not self._is_private(parts) and self.grant.covers("/".join(parts) or ".")

    def _is_private(self, parts: Sequence[str]) -> bool:
        """Whether a path leads to, or through, something of Deputy's own."""
        return any(private and list(parts[: len(private)]) == list(private) for private in self._private)

    def granted_below(self, path: str) -> tuple[str, ...]:
        """Where a search of a path begins: there, or where it is not granted whole, at what is granted below it.

        The folder that all worktrees share lies elsewhere, and is a beginning of its own.
        """
        with self.whole().place(path) as found:
            where = found.path
        searched = Grant(paths=(where,))
        below = tuple(granted for granted in self.grant.paths if searched.covers(granted))
        starts = (where,) if self.grant.covers(where) else below
        shared = self.grant.work_folder
        if not starts:
            self._check(path, found.parts, for_writing=False)
        elif self._is_shared(_split(shared)) and not self._is_shared(found.parts) and searched.covers(shared):
            return (*starts, shared) if self.grant.covers(shared) else starts
        return starts

    def shows_from(self, start: WorkspacePath, parts: Sequence[str]) -> bool:
        """Whether what a search found from here may be named: not what a worktree has in place of the shared folder."""
        return self.shows(parts) and self._is_shared(parts) == self.is_elsewhere(start)

    def is_elsewhere(self, place: WorkspacePath) -> bool:
        """Whether this is in the folder that all worktrees share, and so not beneath the root."""
        return self._is_shared(place.parts)

    def _parts(self, path: str, root: int) -> list[str]:
        if not path or "\0" in path:
            raise ToolError(f"{path!r:.80} is not a path.")
        parts = _split(path)
        if ".." in parts:
            raise ToolError(f"{shown_path(path)}: `..` is not allowed; give the path from the workspace's root.")
        if not path.startswith("/"):
            return parts
        for spelling in self._spellings:
            inside = _split(spelling)
            if parts[: len(inside)] == inside:
                return parts[len(inside) :]
        if self._exists(root, parts):
            return parts
        raise ToolError(f"{shown_path(path)} is outside the workspace; give a path from its root, without a slash.")

    def _exists(self, root: int, parts: list[str]) -> bool:
        with ExitStack() as closing:
            try:
                return self._carefully(root, parts, False, closing).status is not None
            except (OSError, ToolError):
                return False

    def _check(self, path: str, parts: Sequence[str], for_writing: bool) -> None:
        if self._is_private(parts):
            raise ToolError(f"{shown_path(path)} is withheld: it is where this work is recorded.")
        if is_withheld(parts):
            raise ToolError(f"{shown_path(path)} is withheld: it may hold keys or credentials.")
        if not self.grant.covers("/".join(parts) or "."):
            raise ToolError(f"{shown_path(path)} is not among the paths given to you: {', '.join(self.grant.paths)}.")
        if for_writing and not self.grant.may_write("/".join(parts) or "."):
            allowed = ", ".join(self.grant.writable or ()) or "nowhere"
            raise ToolError(f"{shown_path(path)} is not yours to change; write only beneath: {allowed}.")
        if for_writing and is_unwritable(parts):
            raise ToolError(f"{shown_path(path)} is not written by tools: what lies there is run by others.")

    def _quickly(self, root: int, parts: list[str], closing: ExitStack) -> WorkspacePath | None:
        """One system call when no part is a link, which is nearly always."""
        if not (self._uses_openat2 and parts):
            return None
        directory = open_directory_beneath(root, "/".join(parts[:-1]) or ".")
        if directory is None:
            return None
        closing.callback(os.close, directory)
        found = WorkspacePath(directory, parts[-1], parts)
        return None if found.status is not None and stat.S_ISLNK(found.status.st_mode) else found

    def _carefully(self, root: int, parts: list[str], make_parents: bool, closing: ExitStack) -> WorkspacePath:
        """Part by part, never letting the kernel follow a link: links are read here and stay beneath the root."""
        pending = parts[::-1]
        above: list[tuple[str, int]] = []
        links = steps = 0
        while pending:
            part = pending.pop()
            here = above[-1][1] if above else root
            steps += 1
            if links > _MOST_LINKS or steps > _MOST_STEPS:
                raise OSError(errno.ELOOP, "it is too deep or has too many symlinks")
            if part == "..":
                if not above:
                    raise OSError(errno.EXDEV, _LEADS_OUT)
                above.pop()
                continue
            target = _link_target(part, here)
            if target is not None:
                links += 1
                if target.startswith("/"):
                    target = self._inside(target)
                    above.clear()
                pending += _split(target)[::-1]
            elif not pending:
                return WorkspacePath(here, part, [*(name for name, _ in above), part])
            else:
                if make_parents and not _has(here, part):
                    self._make_directory(part, here, [*(name for name, _ in above), part])
                descriptor = os.open(part, _DIRECTORY, dir_fd=here)
                closing.callback(os.close, descriptor)
                above.append((part, descriptor))
        return WorkspacePath(above[-1][1] if above else root, ".", [name for name, _ in above])

    def _make_directory(self, name: str, directory: int, parts: Sequence[str]) -> None:
        """A new directory, where the way there led to what may be written."""
        self._check("/".join(parts), parts, for_writing=True)
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)

    def _inside(self, target: str) -> str:
        """The rest of an absolute link below the root."""
        parts, root = _split(target), _split(self.root)
        if parts[: len(root)] != root:
            raise OSError(errno.EXDEV, _LEADS_OUT)
        return "/".join(parts[len(root) :])


@contextmanager
def _opened(directory: str) -> Generator[int]:
    descriptor = os.open(directory, _DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def kind(mode: int) -> str:
    """What a file that is not regular is, in words."""
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFLNK: "a symlink",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a character device",
        stat.S_IFBLK: "a block device",
    }
    return kinds.get(stat.S_IFMT(mode), "of an unknown kind")


def _size(descriptor: int | None) -> int | None:
    """How large the file here is, if it is a regular and small one."""
    if descriptor is None:
        return None
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) and status.st_size <= SMALL_FILE_BYTES else None


def _content(descriptor: int | None, size: int) -> bytes | None:
    """All of a file of this size, if all of it is in memory and it has that size still."""
    if descriptor is None:
        return None
    try:
        buffer = bytearray(size + 1)
        is_whole = os.preadv(descriptor, [buffer], 0, os.RWF_NOWAIT) == size
    finally:
        os.close(descriptor)
    return bytes(buffer[:size]) if is_whole else None


def _split(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _link_target(name: str, directory: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _has(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def _shown_path(path: str) -> Generator[None]:
    """What the system refuses, told with the path as the agent wrote it."""
    try:
        yield
    except OSError as error:
        raise ToolError(f"{shown_path(path)}: {error.strerror or error}.") from error
