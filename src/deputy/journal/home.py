"""The home directory and its files, which only their owner can read."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct

from deputy.core.errors import StorageDenied, StorageFailed, StorageFull

if TYPE_CHECKING:
    from collections.abc import Callable

JOURNAL = "journal.db"
WORKTREES = "worktrees"
"""The folder of the git worktrees of runs; git drops worktrees whose folder is gone."""
_DIRECTORY = 0o700
_FILE = 0o600
_OTHERS_WRITE = 0o022
_ROOM = 32_768
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class Disk(Struct, frozen=True, gc=False):
    """Conditions of a disk that prevent writing whatever the permissions are."""

    is_full: bool = False
    """It has less room than SQLite needs beside the file."""
    is_read_only: bool = False


def home_path() -> Path:
    """The home: `DEPUTY_HOME`, or `.deputy` in the user's home directory."""
    given = os.environ.get("DEPUTY_HOME", "")
    return Path(given).expanduser().absolute() if given else Path.home() / ".deputy"


def make_home(path: Path) -> Path:
    """Create the home if it is missing; an unsafe one is refused."""
    try:
        _make_directory(path)
    except OSError as error:
        explain(path, error)
    return path


def check_home(path: Path) -> bool:
    """Whether the home exists; an unsafe one is refused. Creates nothing."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        explain(path, error)
    if stat.S_ISLNK(found.st_mode):
        raise StorageDenied(str(path), "it is a symbolic link", "Name the directory itself with DEPUTY_HOME.")
    if not stat.S_ISDIR(found.st_mode):
        raise StorageDenied(str(path), "it is not a directory", "Move it away, or name a directory with DEPUTY_HOME.")
    if found.st_uid != os.geteuid():
        raise StorageDenied(
            str(path),
            f"it belongs to user {found.st_uid}, not to you ({os.geteuid()})",
            "Name a directory of your own with DEPUTY_HOME.",
        )
    return True


def make_file(path: Path, content: Callable[[], bytes]) -> bool:
    """Create a file that only its owner can read, atomically; False when it already exists."""
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}.new")
    try:
        # Never opened when it exists: closing it would drop the locks that SQLite holds on it in this process.
        if _is_there(path):
            return False
        try:
            _write_new(draft, content())
            _link(draft, path)
            sync_directory(path.parent)
        except (FileExistsError, FileNotFoundError):
            # The process that created it meanwhile may have removed this draft.
            if not _is_there(path):
                raise
            return False
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            clear_drafts(path)
    except OSError as error:
        explain(path, error)
    return True


def _write_new(path: Path, content: bytes) -> None:
    """Write a new file and sync it."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, _FILE)
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _link(draft: Path, path: Path) -> None:
    """Give the draft its name, unless the name is taken."""
    try:
        path.hardlink_to(draft)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Without hard links an empty file is created: SQLite fills it in a transaction.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE))
        path.chmod(_FILE)


def clear_drafts(path: Path) -> None:
    """Remove the drafts that dead processes left beside a file."""
    with suppress(OSError):
        for left in path.parent.glob(f".{path.name}.*.new") if path.exists() else ():
            left.unlink(missing_ok=True)


def make_directory(path: Path) -> Path:
    """A directory inside the home that only its owner can enter."""
    try:
        if not path.is_dir() or path.is_symlink():
            # Two processes may create it at once; a link or a file in its place is still refused.
            path.mkdir(_DIRECTORY, exist_ok=not path.is_symlink())
            path.chmod(_DIRECTORY)
            sync_directory(path.parent)
    except OSError as error:
        explain(path, error)
    return path


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader finds the old content or the new, also after a crash."""
    # Threads of one process may write the same file: two Deputies in a program have one home.
    draft = path.with_name(f".{path.name}.{os.getpid()}.{get_ident()}")
    try:
        draft.unlink(missing_ok=True)
        _write_new(draft, content)
        # The directory is not synced: a power cut may bring the old content back, never a torn file.
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        explain(path, error)


def open_own(path: Path, flags: int = 0) -> int:
    """Open a file for writing that only its owner can read; it is created if it is missing."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE)
    try:
        os.fchmod(descriptor, _FILE)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def append_to(path: Path, content: bytes) -> None:
    """Append to a file; it is created if it is missing."""
    try:
        descriptor = open_own(path, os.O_APPEND)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        explain(path, error)


def sync_directory(path: Path) -> None:
    """Sync the entries of a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def disk_of(path: Path) -> Disk:
    """The condition of the disk that holds a file."""
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return Disk()
    return Disk(
        is_full=found.f_bavail * found.f_frsize < _ROOM,
        is_read_only=bool(found.f_flag & os.ST_RDONLY),
    )


def read_only(name: str) -> StorageDenied:
    """The error of a read-only file system."""
    remedy = "Mount it for writing, or name another home with DEPUTY_HOME."
    return StorageDenied(name, "it is on a read-only file system", remedy)


def explain(path: Path, error: OSError) -> NoReturn:
    """Raise an OSError as a StorageError with the path and a remedy."""
    name = str(error.filename or path)
    what = error.strerror or str(error)
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            raise StorageFull(name, what) from error
        case errno.EROFS:
            raise read_only(name) from error
        case errno.EACCES | errno.EPERM | errno.ELOOP:
            raise StorageDenied(name, what) from error
        case errno.ENOTDIR | errno.EEXIST:
            remedy = "Move what is there away, or name another home with DEPUTY_HOME."
            raise StorageDenied(name, what, remedy) from error
        case _:
            raise StorageFailed(name, what) from error


def _make_directory(path: Path) -> None:
    if not check_home(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(_DIRECTORY)
        path.chmod(_DIRECTORY)
        sync_directory(path.parent)
        return
    mode = stat.S_IMODE(path.lstat().st_mode)
    if mode == _DIRECTORY:
        return
    if (path / JOURNAL).exists() or not any(path.iterdir()):
        path.chmod(_DIRECTORY)
    elif mode & _OTHERS_WRITE:
        # A directory with other files may be shared on purpose: its mode is not changed.
        raise StorageDenied(
            str(path),
            f"others may write to it (mode {mode:04o})",
            f"Run `chmod 700 {path}`, or name another home with DEPUTY_HOME.",
        )


def has_file(path: Path) -> bool:
    """Whether a file exists; anything but a regular file is refused (opening a pipe would block)."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        explain(path, error)
    _check_kind(path, found)
    return True


def _is_there(path: Path) -> bool:
    """Whether a file exists; its mode is set to owner-only, and a file of another user is refused."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        explain(path, error)
    _check_kind(path, found)
    if found.st_uid != os.geteuid():
        raise StorageDenied(str(path), f"it belongs to user {found.st_uid}, not to you ({os.geteuid()})")
    if stat.S_IMODE(found.st_mode) != _FILE:
        path.chmod(_FILE)
    return True


def _check_kind(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise StorageDenied(str(path), "it is not a regular file", "Move it away, or name another home.")
