"""The keyboard behind standard input: what was typed before a question, and the rest of what is pasted."""

from __future__ import annotations

import os
import sys
import termios
from contextlib import suppress

PASTE_SECONDS = 0.05
"""How long nothing more comes when what was pasted is whole."""

_LOCAL_MODES = 3


def forget_typed() -> None:
    """Drop what was typed and not read: it answers nothing that is asked from now on."""
    if _is_ours():
        with suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def push_unfinished_line() -> None:
    """Have a last line without its end be read at once, so that it is known that it has begun.

    A terminal keeps such a line to itself; whatever it keeps is readable when it stops reading by lines for a moment.
    """
    if not _is_ours():
        return
    number = sys.stdin.fileno()
    # A terminal may go away at any moment; whoever reads from it then hears of its end.
    with suppress(termios.error):
        modes = termios.tcgetattr(number)
        by_keys = [*modes]
        by_keys[_LOCAL_MODES] &= ~termios.ICANON
        termios.tcsetattr(number, termios.TCSANOW, by_keys)
        termios.tcsetattr(number, termios.TCSANOW, modes)


def _is_ours() -> bool:
    """Whether it is a terminal that listens to this process; touching it from the background would stop us."""
    number = sys.stdin.fileno()
    try:
        return os.isatty(number) and os.tcgetpgrp(number) == os.getpgrp()
    except OSError:
        return False
