"""Draws lines in place on a terminal: over the lines before, also after a resize. Switches the echo of the keys off."""

from __future__ import annotations

import os
import shutil
import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text

_HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_ERASE_LINE, _ERASE_BELOW = "\x1b[K", "\x1b[J"
_SAVE_CURSOR, _RESTORE_CURSOR = "\x1b7", "\x1b8"
_LOCAL_MODES = 3


class TerminalPainter:
    """One picture on standard error, drawn again and again; `stop` leaves it or erases it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lengths: list[int] = []
        """The columns of each drawn line."""
        self._drawn: tuple[int, list[str]] = (0, [])
        sys.stderr.write(_HIDE_CURSOR)

    def draw(self, lines: Sequence[Text]) -> None:
        """Replace the picture."""
        width, _ = terminal_size()
        for line in lines:
            # A line that fills the last column makes some terminals wrap.
            line.truncate(width - 1, overflow="ellipsis")
        shown = [self._styled(line) for line in lines]
        if self._drawn == (width, shown):
            return
        picture = f"{_ERASE_LINE}\n".join(shown)
        sys.stderr.write(f"{self._to_top()}{picture}{_ERASE_BELOW}")
        sys.stderr.flush()
        self._lengths, self._drawn = [line.cell_len for line in lines], (width, shown)

    def continued(self) -> None:
        """Draw the next picture below: the process was stopped (Ctrl-Z), and the shell has printed since."""
        self._lengths, self._drawn = [], (0, [])
        sys.stderr.write(_HIDE_CURSOR)

    def stop(self, *, is_erased: bool = False) -> None:
        """Give the terminal back, with the picture above the cursor or without it."""
        end = f"{self._to_top()}{_ERASE_BELOW}" if is_erased else "\n" * bool(self._lengths)
        sys.stderr.write(f"{end}{SHOW_CURSOR}")
        sys.stderr.flush()

    def rows_up(self, below: str) -> int | None:
        """The rows from the cursor to the first line, with this text below the picture; None if it is not on screen."""
        width, height = terminal_size()
        rows = sum(_rows_of(line, width) for line in below.split("\n"))
        up = len(self._lengths) - 1 + rows
        return up if self._lengths and self._drawn[0] == width and up < height else None

    def draw_above(self, lines: Sequence[Text], rows_up: int) -> None:
        """Replace the picture, which has been left, without moving the cursor below it."""
        width, _ = self._drawn
        blank = [type(lines[0])()] * (len(self._lengths) - len(lines))
        for line in lines:
            line.truncate(width - 1, overflow="ellipsis")
        shown = [self._styled(line) for line in [*lines, *blank]]
        if shown != self._drawn[1]:
            picture = "\n".join(f"{line}{_ERASE_LINE}" for line in shown)
            sys.stderr.write(f"{_SAVE_CURSOR}\r\x1b[{rows_up}A{picture}{_RESTORE_CURSOR}")
            sys.stderr.flush()
            self._drawn = (width, shown)

    @property
    def height(self) -> int:
        """The number of lines of the picture."""
        return len(self._lengths)

    def _styled(self, line: Text) -> str:
        with self._console.capture() as captured:
            self._console.print(line, end="", soft_wrap=True)
        return captured.get()

    def _to_top(self) -> str:
        """Move to the first row of the picture; a terminal that became narrower has wrapped its lines."""
        width, height = terminal_size()
        rows = sum(max(1, -(-length // width)) for length in self._lengths)
        up = min(rows, height) - 1
        return f"\r\x1b[{up}A" if up > 0 else "\r"


def _rows_of(line: str, width: int) -> int:
    """The rows that a terminal needs for a line; a wide letter does not begin in the last column."""
    from rich.cells import cell_len

    rows, used = 1, 0
    for cells in map(cell_len, line):
        if used + cells > width:
            rows, used = rows + 1, 0
        used += cells
    return rows


def terminal_size() -> tuple[int, int]:
    """The columns and rows of the terminal now; `COLUMNS` is not updated by a resize."""
    with suppress(OSError, ValueError):
        size = os.get_terminal_size(sys.stderr.fileno())
        if size.columns > 0 and size.lines > 0:
            return size
    return shutil.get_terminal_size()


# --- echo -------------------------------------------------------------------------------------------------------------

_modes: list[Any] = []
"""The modes of the terminal before the echo was switched off."""


def echo_off() -> None:
    """Do not show what is typed, which would move the picture; from the background nothing is changed."""
    _switch_off(termios.ECHO)


def keys_on() -> None:
    """Pass each key on at once, without an echo, so that the program knows whether anything was typed."""
    _switch_off(termios.ECHO | termios.ICANON)


def _switch_off(modes_off: int) -> None:
    with suppress(termios.error, OSError, ValueError):
        number = sys.stderr.fileno()
        if _is_in_background(number):
            return
        modes = termios.tcgetattr(number)
        silent = [*modes]
        silent[_LOCAL_MODES] &= ~modes_off
        termios.tcsetattr(number, termios.TCSADRAIN, silent)
        _modes[:] = _modes or modes


def _is_in_background(number: int) -> bool:
    """Whether another process group has this terminal, so that a change of its modes would stop this process."""
    try:
        return os.tcgetpgrp(number) != os.getpgrp()
    except OSError:
        return False


def echo_on() -> None:
    """Restore the modes that `echo_off` and `keys_on` have changed."""
    with suppress(termios.error, OSError, ValueError):
        if _modes:
            modes, _modes[:] = [*_modes], []
            termios.tcsetattr(sys.stderr.fileno(), termios.TCSADRAIN, modes)
