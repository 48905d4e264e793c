"""`make pictures`, first part: run the demos in a terminal emulator, and draw their screens as SVG."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyte

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyte.screens import Char

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
COLUMNS, ROWS = 96, 100
CELL, LINE, FONT = 8.4, 19.0, 14
MARGIN, BAR = 22.0, 40.0
INK, PAPER, EDGE, TITLE = "#c9d1d9", "#0d1117", "#30363d", "#8b949e"
COLOURS = {
    "default": INK,
    "red": "#ff7b72",
    "green": "#56d364",
    "brown": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#76e3ea",
    "brightblack": "#8b949e",
}
"""By the names that the emulator gives to colours."""
FAMILY = "ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
PROMPT = re.compile(r"^> $|^Go ahead\?.*\] $")
FAINT = re.compile(rb"\x1b\[2m")


class Picture(NamedTuple):
    """A picture of a demo's screen."""

    name: str
    title: str
    script: str
    seen: tuple[str, ...]
    """It is taken once the screen has these texts."""
    first: str
    """Its first and its last line begin with these texts."""
    last: str


DEMOS = (
    Picture(
        "demo.svg",
        "make demo",
        "demo.py",
        ("$ deputy resume", "total  1 completed, 1 partial"),
        "Three subagents review",
        "total  ",
    ),
    Picture(
        "cluster.svg",
        "make demo-cluster",
        "demo_cluster.py",
        ("What happened", " model calls; "),
        "$ deputy delegate",
        "  ✓ ",
    ),
)


def main() -> int:
    """Write the pictures; 1 if the moment of one never came."""
    environ = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLORTERM")}
    environ = {**environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    wanted = sys.argv[1:]
    for demo in DEMOS:
        if wanted and demo.name not in wanted:
            continue
        svg = ""
        for screen in play([sys.executable, str(ROOT / "examples" / demo.script)], environ):
            if not svg and all(text in "\n".join(screen.display) for text in demo.seen):
                svg = drawn(screen, demo)
        if not svg:
            sys.stderr.write(f"no picture: the screen never had all of {demo.seen}\n")
            return 1
        (PICTURES / demo.name).write_text(svg, "utf-8")
        sys.stdout.write(f"docs/pictures/{demo.name}\n")
    return 0


def play(command: list[str], environ: Mapping[str, str], typed: Sequence[str] = ()) -> Iterator[pyte.Screen]:
    """Run a command in a terminal of its own; its screen after each piece of output. Prompts get the typed answers."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(command[0], command, environ)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = pyte.Screen(COLUMNS, ROWS)
    stream, answers, is_answered = pyte.ByteStream(screen), iter(typed), False
    while output := _read(terminal):
        # The emulator has no faint text: show it as grey.
        stream.feed(FAINT.sub(b"\x1b[90m", output))
        yield screen
        is_open = PROMPT.search(screen.display[screen.cursor.y][: screen.cursor.x]) is not None
        # The table above a prompt is drawn again while the prompt waits.
        if is_open and not is_answered:
            os.write(terminal, f"{next(answers)}\n".encode())
        is_answered = is_open
    os.waitpid(child, 0)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        # The child has closed its side.
        return b""


def drawn(screen: pyte.Screen, demo: Picture) -> str:
    """The screen as SVG, between the last lines that begin with the first and the last text of the picture."""
    begin = max(number for number, line in enumerate(screen.display) if line.startswith(demo.first))
    end = max(number for number, line in enumerate(screen.display) if line.startswith(demo.last)) + 1
    width, height = COLUMNS * CELL + 2 * MARGIN, BAR + (end - begin) * LINE + MARGIN
    rows = [_row(screen, number, BAR + (place + 0.75) * LINE) for place, number in enumerate(range(begin, end))]
    dots = "".join(
        f'<circle cx="{MARGIN + 20 * place}" cy="20" r="6" fill="{colour}"/>'
        for place, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="{FAMILY}" font-size="{FONT}" fill="{INK}">\n'
        f'<rect x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="10" fill="{PAPER}" '
        f'stroke="{EDGE}"/>\n{dots}\n'
        f'<text x="{width / 2:.0f}" y="25" text-anchor="middle" fill="{TITLE}">{demo.title}</text>\n'
        f"{''.join(rows)}</svg>\n"
    )


def _row(screen: pyte.Screen, number: int, y: float) -> str:
    """One line of the screen: a piece of text for each run of cells with the same look."""
    cells = [screen.buffer[number][column] for column in range(COLUMNS)]
    pieces, column = list[str](), 0
    for look, run in groupby(cells, _look):
        text = "".join(cell.data for cell in run)
        if text.strip():
            # An exact length keeps columns straight in every font.
            place = f'x="{MARGIN + column * CELL:.1f}" y="{y:.1f}" textLength="{len(text) * CELL:.1f}"'
            pieces.append(f'<text {place} xml:space="preserve"{look}>{escape(text, quote=False)}</text>\n')
        column += len(text)
    return "".join(pieces)


def _look(cell: Char) -> str:
    colour = COLOURS.get(cell.fg, f"#{cell.fg}")
    ink = f' fill="{colour}"' if colour != INK else ""
    return ink + (' font-weight="bold"' if cell.bold else "") + (' font-style="italic"' if cell.italics else "")


if __name__ == "__main__":
    sys.exit(main())
