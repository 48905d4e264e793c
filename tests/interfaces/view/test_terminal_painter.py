"""The picture on a real terminal of its own."""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
from typing import TextIO

import pyte
import pytest
from rich.console import Console
from rich.text import Text
from tests.interfaces.cli.commands.test_run import Screen

from deputy.interfaces.view.terminal_painter import TerminalPainter, echo_off, echo_on


class Display:
    """A terminal whose standard error is ours."""

    def __init__(self, number: int, stderr: TextIO) -> None:
        self._number = number
        self.stderr = stderr
        self.shown = ""

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self._number, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def type(self, text: str) -> None:
        """Type lines, and wait until the terminal has them."""
        os.write(self._number, text.encode())
        assert select.select([self.stderr], [], [], 20)[0]

    def read(self) -> str:
        """What was shown since the last look."""
        piece = b""
        while select.select([self._number], [], [], 0)[0]:
            piece += os.read(self._number, 65536)
        self.shown += piece.decode()
        return piece.decode()

    @property
    def rows(self) -> list[str]:
        self.read()
        return Screen(self.shown).rows


@pytest.fixture
def display():
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "wb", buffering=0), os.fdopen(theirs, "w") as stderr:
        terminal = Display(ours, stderr)
        terminal.resize(60)
        yield terminal


def painter(display: Display, monkeypatch: pytest.MonkeyPatch) -> TerminalPainter:
    monkeypatch.setattr(sys, "stderr", display.stderr)
    return TerminalPainter(Console(stderr=True, width=200))


@pytest.mark.rule("delegate.view")
def test_what_is_typed_does_not_move_the_picture_and_is_echoed_again_afterwards(display, monkeypatch):
    drawn = painter(display, monkeypatch)
    echo_off()
    drawn.draw([Text("Delegate"), Text("[a] thinking")])
    display.type("\x0cabc\n")
    drawn.draw([Text("Delegate"), Text("[a] writing")])
    drawn.stop()
    echo_on()
    assert display.rows == ["Delegate", "[a] writing", ""]
    assert termios.tcgetattr(display.stderr)[3] & termios.ECHO


@pytest.mark.rule("delegate.view")
def test_lines_are_cut_to_the_columns_of_now_and_a_narrower_terminal_has_wrapped_those_before(display, monkeypatch):
    drawn = painter(display, monkeypatch)
    lines = [Text("Delegate"), Text("x" * 80), Text("\u8a9e" * 50)]
    drawn.draw([line.copy() for line in lines])
    assert [len(row) for row in display.rows] == [8, 59, 30]
    display.resize(30)
    drawn.draw([line.copy() for line in lines])
    again = display.read()
    assert again.startswith("\r\x1b[4A"), "the two long lines take two rows each"
    assert [len(row) for row in Screen(again.replace("\x1b[4A", "")).rows] == [8, 29, 15]
    display.resize(60)
    drawn.draw([line.copy() for line in lines])
    assert display.read().startswith("\r\x1b[2A")


def test_a_picture_that_is_shorter_leaves_nothing_behind_and_the_same_picture_is_not_drawn_again(display, monkeypatch):
    drawn = painter(display, monkeypatch)
    drawn.draw([Text("one"), Text("two two"), Text("three")])
    drawn.draw([Text("one"), Text("two")])
    assert display.rows == ["one", "two"]
    drawn.draw([Text("one"), Text("two")])
    assert display.read() == ""
    drawn.stop(is_erased=True)
    assert display.rows == [""]


def test_after_a_stop_the_picture_is_drawn_below_what_the_shell_has_printed(display, monkeypatch):
    drawn = painter(display, monkeypatch)
    drawn.draw([Text("one"), Text("two")])
    display.read()
    drawn.continued()
    drawn.draw([Text("one"), Text("two")])
    assert "A" not in display.read().replace("\x1b[?25l", "")
    drawn.stop()


@pytest.mark.parametrize(
    ("below", "rows"), [("", 1), ("x" * 59, 1), ("x" * 60, 2), ("\u8a9e" * 29, 1), ("\u8a9e" * 59, 3), ("a\n> ", 2)]
)
def test_wide_letters_below_a_picture_take_the_rows_that_the_terminal_gives_them(display, monkeypatch, below, rows):
    display.resize(59)
    drawn = painter(display, monkeypatch)
    drawn.draw([Text("one"), Text("two")])
    assert drawn.rows_up(below) == 1 + rows
    drawn.stop()
    display.stderr.write(below)
    display.stderr.flush()
    drawn.draw_above([Text("ONE"), Text("two")], 1 + rows)
    display.read()
    shown = pyte.Screen(59, 24)
    pyte.Stream(shown).feed(display.shown)
    assert [row.strip() for row in shown.display[:2]] == ["ONE", "two"]
