"""Show text of models, files and other agents: secrets redacted, terminal escapes stripped."""

from __future__ import annotations

from deputy.core.detect.visible import escaped_invisible as escaped_invisible
from deputy.core.foreign_text import PlainStream as PlainStream
from deputy.core.foreign_text import plain_data as plain_data
from deputy.processes.outgoing import outgoing_json as outgoing_json
from deputy.processes.outgoing import outgoing_text as plain
from deputy.processes.outgoing import process_redactor

_PIPE_COLUMNS = 240


def one_line(text: str, width: int) -> str:
    """The text on one line, at most `width` characters, cut with `…`."""
    is_long = len(text) > width * 8
    # The stream drops an escape or a secret that the cut splits.
    shown = process_redactor().stream().feed(PlainStream().feed(text[: width * 8])) if is_long else plain(text)
    flat = " ".join(shown.split())
    cut = len(flat) > width or is_long
    return flat if not cut else f"{flat[: width - 1].rstrip()}…"


def one_line_at(text: str, width: int) -> str:
    """The same, with the indent of a tree kept."""
    indent = text[: len(text) - len(text.lstrip(" "))][: max(0, width - 2)]
    return indent + one_line(text, width - len(indent))


def terminal_width() -> int:
    """The columns of a line: those of the terminal, or a fixed number in a pipe."""
    import shutil
    import sys

    return max(20, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _PIPE_COLUMNS


def filled(start: str, text: str) -> str:
    """A text after a heading, wrapped with a hanging indent."""
    import textwrap

    return textwrap.fill(
        " ".join(plain(text).split()),
        terminal_width(),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
