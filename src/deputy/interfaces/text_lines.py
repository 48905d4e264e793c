"""Text of models, files and other agents as it is shown: without secrets, and nothing that a terminal would obey."""

from __future__ import annotations

from deputy.core.detect.visible import escaped_invisible as escaped_invisible
from deputy.core.terminal_text import PlainStream as PlainStream
from deputy.core.terminal_text import plain_data as plain_data
from deputy.processes.outgoing import outgoing_json as outgoing_json
from deputy.processes.outgoing import outgoing_text as plain
from deputy.processes.outgoing import process_redactor

_PIPE_COLUMNS = 240


def one_line(text: str, width: int) -> str:
    """The text on one line, at most `width` characters, cut with `…`."""
    is_long = len(text) > width * 8
    # An escape or a secret that is cut through is left out with its beginning.
    shown = process_redactor().stream().feed(PlainStream().feed(text[: width * 8])) if is_long else plain(text)
    flat = " ".join(shown.split())
    cut = len(flat) > width or is_long
    return flat if not cut else f"{flat[: width - 1].rstrip()}…"


def one_line_at(text: str, width: int) -> str:
    """The same with the indent it has, which tells where it stands in a tree."""
    indent = text[: len(text) - len(text.lstrip(" "))][: max(0, width - 2)]
    return indent + one_line(text, width - len(indent))


def terminal_width() -> int:
    """How many columns a line may have: those of the terminal, or as many as it takes in a pipe."""
    import shutil
    import sys

    return max(20, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _PIPE_COLUMNS


def filled(start: str, text: str) -> str:
    """A text after what it is about, broken between words so that its lines stand below each other."""
    import textwrap

    return textwrap.fill(
        " ".join(plain(text).split()),
        terminal_width(),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
