"""Locks of folders that processes of this machine share: one that no process uses can be removed."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path


def _open_lock(folder: Path) -> int:
    return os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def shared_lock(folder: Path) -> int:
    """Lock a folder that this process uses; the lock goes with its process."""
    while True:
        descriptor = _open_lock(folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if os.path.samestat(os.fstat(descriptor), os.stat(f"{folder}.lock")):  # noqa: PTH116
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        # The folder was removed together with the lock that was waited for.
        os.close(descriptor)


def remove_unused(folder: Path) -> None:
    """Remove a folder that no process uses; one that wants it meanwhile waits, and makes it anew."""
    with suppress(OSError):
        descriptor = _open_lock(folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            marker(folder).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            Path(f"{folder}.lock").unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def marker(folder: Path) -> Path:
    """The file beside a folder that says that it is whole."""
    return folder.with_name(f"{folder.name}.json")


def folders_in(path: Path) -> list[Path]:
    """The folders in a folder, which may be missing; no links."""
    try:
        return [one for one in path.iterdir() if one.is_dir() and not one.is_symlink()]
    except OSError:
        return []
