"""The system call that opens a directory beneath another one and follows no link on the way, where there is one."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_OPENAT2 = 437
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08


def open_directory_beneath(root: int, path: str) -> int | None:
    """A descriptor of the directory, or None when the kernel cannot or would have to follow a link."""
    descriptor = _call()(root, os.fsencode(path)) if sys.platform == "linux" else -1
    return descriptor if descriptor >= 0 else None


@cache
def _call() -> Callable[[int, bytes], int]:
    import ctypes

    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    how = (ctypes.c_uint64 * 3)(flags, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)
    syscall = ctypes.CDLL(None).syscall
    syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    syscall.restype = ctypes.c_long
    return lambda root, path: syscall(_OPENAT2, root, path, how, ctypes.sizeof(how))
