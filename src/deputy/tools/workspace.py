"""The workspace: tools open files beneath its root only, by descriptors that are safe from symlink races."""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from copy import copy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from deputy.core.request import Grant
from deputy.tools.secret_files import is_unwritable, is_withheld
from deputy.tools.tool_text import NotThere, ToolError, shown_path

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

_OPENAT2 = 437
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH, _CACHED = 0x02, 0x04, 0x08, 0x20
_FREE_OF_LINKS = _NO_SYMLINKS | _NO_MAGICLINKS
_HERE = -100
_BENEATH_DIRECTORY = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_CLOEXEC
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO would block the open for ever; a terminal could become ours.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SEEN = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC
SMALL_FILE_BYTES = 64 * 1024
_MOST_LINKS = 40
_MOST_STEPS = 400
_LEADS_OUT = "it leads out of the workspace through a symlink"


class WorkspacePath:
    """A resolved path: a name in an open directory; not a symlink, perhaps not existing yet."""

    def __init__(self, directory: int, name: str, parts: Sequence[str]) -> None:
        self.directory = directory
        self.name = name
        self.parts = tuple(parts)
        self.path = "/".join(parts) or "."
        self.status = self.stat()

    def open_file(self) -> BinaryIO:
        """Open the regular file here; anything else is refused."""
        self.expect_file()
        descriptor = os.open(self.name, _FILE, dir_fd=self.directory)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ToolError(f"{shown_path(self.path)} changed while it was being opened; call again.")
        return os.fdopen(descriptor, "rb")

    def open_directory(self) -> int:
        """A descriptor of the directory here, which the caller closes."""
        return os.open(self.name, _DIRECTORY, dir_fd=self.directory)

    def expect_file(self) -> os.stat_result:
        """The status of the regular file here; the error names what is there instead."""
        if self.status is None:
            raise NotThere(f"{shown_path(self.path)} does not exist.")
        if stat.S_ISDIR(self.status.st_mode):
            raise NotThere(f"{shown_path(self.path)} is a directory, not a file.", is_folder=True)
        if not stat.S_ISREG(self.status.st_mode):
            raise ToolError(f"{shown_path(self.path)} is {_kind(self.status.st_mode)}, not a file.")
        return self.status

    def parts_of(self, name: bytes) -> tuple[str, ...]:
        """The parts of a path that a search from here printed."""
        if not self.is_directory:
            return self.parts
        return (*self.parts, *(part for part in os.fsdecode(name).split("/") if part != "."))

    @property
    def is_directory(self) -> bool:
        """Whether there is a directory here."""
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)

    def stat(self) -> os.stat_result | None:
        """The current status, without following a link."""
        try:
            return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return None


class Workspace:
    """A directory with a grant. No path leads out of it or to a withheld file."""

    def __init__(
        self,
        root: Path | str,
        grant: Grant | None = None,
        *,
        private: Sequence[Path | str] = (),
        main: Path | str | None = None,
        repository: str = "",
        uses_openat2: bool = True,
    ) -> None:
        """`repository` is the git repository of the worktree, if it is not in `main`."""
        self.root = os.path.realpath(root)
        self.repository = repository
        self.main = self.root if main is None else os.path.realpath(main)
        """The workspace that a worktree belongs to; else the root itself."""
        self.grant = Grant() if grant is None else grant
        self._spellings = {self.root, str(Path.cwd() / root)}
        self._private = tuple(_split(os.path.relpath(os.path.realpath(path), self.root)) for path in private)
        self._uses_openat2 = uses_openat2

    @property
    def is_whole(self) -> bool:
        """Whether all of it is granted."""
        return self.grant.covers(".")

    def whole(self) -> Workspace:
        """The same directory with all of it granted; withheld files stay withheld."""
        whole = copy(self)
        whole.grant = Grant(work_folder=self.grant.work_folder)
        return whole

    def open_root(self) -> AbstractContextManager[int]:
        """A descriptor of the root, for the duration of the block."""
        return _opened(self.root)

    @contextmanager
    def place(self, path: str, *, make_parents: bool = False, for_writing: bool = False) -> Generator[WorkspacePath]:
        """Resolve a path, for the duration of the block."""
        with _shown_path(path), ExitStack() as closing, self.open_root() as root:
            parts = self._parts(path, root)
            self._check(path, parts, for_writing)
            top = closing.enter_context(_opened(self.main)) if self._is_shared(parts) else root
            found = self._quickly(top, parts, closing) or self._carefully(top, parts, make_parents, closing)
            self._check(path, found.parts, for_writing)
            if top != root and not self._is_shared(found.parts):
                raise ToolError(f"{shown_path(path)}: it leads out of {self.grant.work_folder} through a symlink.")
            yield found

    def private_parts(self) -> list[Sequence[str]]:
        """The parts of the private paths below the root."""
        return [parts for parts in self._private if parts and parts[0] != ".."]

    def top_of(self, path: str) -> str:
        """The directory of a path: the root, or the main workspace for the shared work folder."""
        return self.main if self._is_shared(_split(path)) else self.root

    def _is_shared(self, parts: Sequence[str]) -> bool:
        """Whether a path is in the work folder that all worktrees share."""
        return self.main != self.root and self.grant.is_shared("/".join(parts))

    def read_small(self, path: str) -> tuple[str, bytes] | None:
        """Path and content of a small file that is in the page cache; None when `place` must be used."""
        parts = [] if path.startswith("/") or "\0" in path else _split(path)
        if not (self._uses_openat2 and parts) or ".." in parts or self._is_shared(parts) or not self.shows(parts):
            return None
        name = "/".join(parts)
        place = f"{self.root}/{name}"
        with suppress(OSError):
            # Check first: opening a device can have effects.
            size = _size(_open_plain(place, _SEEN))
            content = None if size is None else _content(_open_plain(place, _FILE), size)
            return None if content is None else (name, content)
        return None

    def shows(self, parts: Sequence[str]) -> bool:
        """Whether the agent may see a path below the root that has no links."""
        return not is_withheld(parts) and not self._is_private(parts) and self.grant.covers("/".join(parts) or ".")

    def _is_private(self, parts: Sequence[str]) -> bool:
        """Whether a path leads to or through Deputy's own files."""
        return any(private and list(parts[: len(private)]) == list(private) for private in self._private)

    def granted_below(self, path: str) -> tuple[str, ...]:
        """The starting points of a search: the path itself, or the granted paths below it.

        The shared work folder is not beneath a worktree's root, so it is a separate starting point.
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
        """Whether a result of a search from `start` may be shown; a worktree's own copy of the work folder may not."""
        return self.shows(parts) and self._is_shared(parts) == self.is_elsewhere(start)

    def is_elsewhere(self, place: WorkspacePath) -> bool:
        """Whether this is in the shared work folder, outside the root."""
        return self._is_shared(place.parts)

    def _parts(self, path: str, root: int) -> list[str]:
        if not path or "\0" in path:
            raise ToolError(f"{path!r:.80} is not a valid path; give one from the workspace's root.")
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
            raise ToolError(f"{shown_path(path)} is withheld: Deputy keeps its own files there. Work without it.")
        if is_withheld(parts):
            raise ToolError(f"{shown_path(path)} is withheld: it may contain keys or credentials. Work without it.")
        if not self.grant.covers("/".join(parts) or "."):
            raise ToolError(f"{shown_path(path)} is not among the granted paths: {', '.join(self.grant.paths)}.")
        if for_writing and not self.grant.may_write("/".join(parts) or "."):
            allowed = ", ".join(self.grant.writable or ()) or "nowhere"
            raise ToolError(f"{shown_path(path)} must not be changed; write only beneath: {allowed}.")
        if for_writing and is_unwritable(parts):
            raise ToolError(
                f"{shown_path(path)} must not be changed: programs run files from there. Report the change instead."
            )

    def _quickly(self, root: int, parts: list[str], closing: ExitStack) -> WorkspacePath | None:
        """Resolve with one system call; works if no part is a link, which is the usual case."""
        if not (self._uses_openat2 and parts):
            return None
        directory = _open_beneath(root, "/".join(parts[:-1]) or ".")
        if directory is None:
            return None
        closing.callback(os.close, directory)
        found = WorkspacePath(directory, parts[-1], parts)
        return None if found.status is not None and stat.S_ISLNK(found.status.st_mode) else found

    def _carefully(self, root: int, parts: list[str], make_parents: bool, closing: ExitStack) -> WorkspacePath:
        """Resolve part by part; links are read here, never followed by the kernel, and must stay beneath the root."""
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
        """Make a directory if the resolved path may be written."""
        self._check("/".join(parts), parts, for_writing=True)
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)

    def _inside(self, target: str) -> str:
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


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFLNK: "a symlink",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a character device",
        stat.S_IFBLK: "a block device",
    }
    return kinds.get(stat.S_IFMT(mode), "of an unknown kind")


def _size(descriptor: int | None) -> int | None:
    if descriptor is None:
        return None
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) and status.st_size <= SMALL_FILE_BYTES else None


def _content(descriptor: int | None, size: int) -> bytes | None:
    """The content of a file that still has this size and is in the page cache."""
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
    """Turn an OSError into a ToolError with the path as the agent wrote it."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotThere(f"{shown_path(path)} does not exist.") from error
    except OSError as error:
        raise ToolError(f"{shown_path(path)}: {error.strerror or error}.") from error


def _open_beneath(root: int, path: str) -> int | None:
    """A descriptor of the directory; None when the path has a link, or without openat2."""
    return _openat2(root, path, _BENEATH_DIRECTORY, _FREE_OF_LINKS | _BENEATH)


def _open_plain(path: str, flags: int) -> int | None:
    """A descriptor of the path; None when it has a link, or when opening would wait for a disk."""
    return _openat2(_HERE, path, flags, _FREE_OF_LINKS | _CACHED)


def _openat2(directory: int, path: str, flags: int, resolve: int) -> int | None:
    descriptor = _openat2_call(flags, resolve)(directory, os.fsencode(path)) if sys.platform == "linux" else -1
    return descriptor if descriptor >= 0 else None


@cache
def _openat2_call(flags: int, resolve: int) -> Callable[[int, bytes], int]:
    import ctypes

    how = (ctypes.c_uint64 * 3)(flags, 0, resolve)
    # A call that never waits keeps the GIL: getting it back takes longer than the call.
    library = ctypes.PyDLL(None) if resolve & _CACHED else ctypes.CDLL(None)
    syscall = library.syscall
    syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    syscall.restype = ctypes.c_long
    return lambda directory, path: syscall(_OPENAT2, directory, path, how, ctypes.sizeof(how))
