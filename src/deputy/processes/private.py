"""A process whose environment and memory other processes of the same user cannot read."""

from __future__ import annotations

import sys

_SET_DUMPABLE = 4


def make_private() -> None:
    """Keep other processes of this user from reading this one, on Linux; root still can.

    The system then writes no core dump of it, and a debugger cannot attach. It ends with the next `exec`, so every
    program that should have it calls this itself.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
