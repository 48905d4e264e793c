"""Child processes: supervised, bounded, and ended with everything they started."""

from __future__ import annotations

import sys

_SET_DUMPABLE = 4


def make_private() -> None:
    """Make this process unreadable for other processes of this user, on Linux; root still can read it.

    It also prevents core dumps and debuggers. An `exec` resets it, so every program calls this itself.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
