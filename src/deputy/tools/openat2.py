"""The system call openat2: open a path beneath a directory without following links."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_OPENAT2 = 437
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH, _CACHED = 0x02, 0x04, 0x08, 0x20
_FREE_OF_LINKS = _NO_SYMLINKS | _NO_MAGICLINKS
_HERE = -100
_DIRECTORY = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_CLOEXEC


def open_directory_beneath(root: int, path: str) -> int | None:
    """A descriptor of the directory; None when the path has a link, or without openat2."""
    return _opened(root, path, _DIRECTORY, _FREE_OF_LINKS | _BENEATH)


def open_plain(path: str, flags: int) -> int | None:
    """A descriptor of the path; None when it has a link, or when opening would wait for a disk."""
    return _opened(_HERE, path, flags, _FREE_OF_LINKS | _CACHED)


def _opened(directory: int, path: str, flags: int, resolve: int) -> int | None:
    descriptor = _call(flags, resolve)(directory, os.fsencode(path)) if sys.platform == "linux" else -1
    return descriptor if descriptor >= 0 else None


@cache
def _call(flags: int, resolve: int) -> Callable[[int, bytes], int]:
    import ctypes

    how = (ctypes.c_uint64 * 3)(flags, 0, resolve)
    # A call that never waits keeps the GIL: getting it back takes longer than the call.
    library = ctypes.PyDLL(None) if resolve & _CACHED else ctypes.CDLL(None)
    syscall = library.syscall
    syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    syscall.restype = ctypes.c_long
    return lambda directory, path: syscall(_OPENAT2, directory, path, how, ctypes.sizeof(how))
