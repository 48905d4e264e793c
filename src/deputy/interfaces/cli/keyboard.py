"""Terminal input around a question: drop earlier typing, and read a paste as a whole."""

from __future__ import annotations

import os
import sys
import termios
from contextlib import suppress

PASTE_SECONDS = 0.05
"""A paste is complete after this silence."""

_LOCAL_MODES = 3


def forget_typed() -> None:
    """Drop unread input: it was typed before the question and does not answer it."""
    if _is_ours():
        with suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def push_unfinished_line() -> None:
    """Make an unfinished last line readable.

    In canonical mode the terminal holds back a line without a newline; leaving that mode for a moment releases it.
    """
    if not _is_ours():
        return
    number = sys.stdin.fileno()
    # The terminal may be closed at any moment; the reader then sees the end of input.
    with suppress(termios.error):
        modes = termios.tcgetattr(number)
        by_keys = [*modes]
        by_keys[_LOCAL_MODES] &= ~termios.ICANON
        termios.tcsetattr(number, termios.TCSANOW, by_keys)
        termios.tcsetattr(number, termios.TCSANOW, modes)


def _is_ours() -> bool:
    """Whether stdin is our terminal in the foreground; changing its modes from the background stops the process."""
    number = sys.stdin.fileno()
    try:
        return os.isatty(number) and os.tcgetpgrp(number) == os.getpgrp()
    except OSError:
        return False
