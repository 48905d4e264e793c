"""Start a child process that can read only beneath one directory, with Landlock where the kernel has it.

A search program opens files by name, so a symlink created at the right moment could lead it out of the workspace. The
kernel's check has no such race.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from subprocess import Popen

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_EXECUTE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 2, 1 << 3
_EVERYTHING = (1 << 13) - 1
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")


def spawn_confined(spawn: Callable[[], Popen[bytes]], *, program: str, beneath: int) -> Popen[bytes]:
    """Start a program that can read beneath a directory and change nothing; unconfined without Landlock.

    Landlock also confines the spawning thread, permanently, so a short-lived thread does it.
    """
    if not _can_confine():
        return spawn()

    def confine_and_spawn() -> Popen[bytes]:
        _confine_this_thread(beneath, (program, *_LIBRARIES))
        return spawn()

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(confine_and_spawn).result()


@cache
def _can_confine() -> bool:
    return sys.platform == "linux" and _system().syscall(_CREATE_RULESET, None, 0, 1) >= 1


@cache
def _system() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _confine_this_thread(beneath: int, programs: Sequence[str]) -> None:
    import ctypes

    handled = ctypes.c_uint64(_EVERYTHING)
    ruleset = _checked(_system().syscall(_CREATE_RULESET, ctypes.byref(handled), ctypes.sizeof(handled), 0))
    try:
        _allow(ruleset, beneath, _READ_FILE | _READ_DIRECTORY)
        for program in programs:
            _allow_program(ruleset, program)
        _checked(_system().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _checked(_system().syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow_program(ruleset: int, path: str) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        _allow(ruleset, descriptor, _EXECUTE | _READ_FILE)
    finally:
        os.close(descriptor)


def _allow(ruleset: int, descriptor: int, access: int) -> None:
    import ctypes

    class PathBeneath(ctypes.Structure):
        _pack_ = 1
        _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))

    rule = PathBeneath(access, descriptor)
    _checked(_system().syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0))


def _checked(result: int) -> int:
    import ctypes

    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
