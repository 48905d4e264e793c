"""Text and numbers for people: secrets redacted, terminal escapes stripped, lines cut, figures shortened."""

from __future__ import annotations

from deputy.core.foreign_text import PlainStream as PlainStream
from deputy.core.foreign_text import plain_data as plain_data
from deputy.core.limits import cost_text
from deputy.core.visible_text import escaped_invisible as escaped_invisible
from deputy.processes.outgoing import outgoing_json as outgoing_json
from deputy.processes.outgoing import outgoing_text as plain
from deputy.processes.outgoing import process_redactor as process_redactor

_PIPE_COLUMNS = 240


def one_line(text: str, width: int) -> str:
    """The text on one line, at most `width` characters, cut with `…`."""
    is_long = len(text) > width * 8
    # An escape or a secret that the cut splits is dropped.
    shown = process_redactor().redact(PlainStream().feed(text[: width * 8]), is_cut=True) if is_long else plain(text)
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


def page_width() -> int:
    """The columns of a page that people read: at most 80, also in a pipe."""
    return min(80, terminal_width())


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


# --- numbers ----------------------------------------------------------------------------------------------------------


def tokens(given: int, taken: int, *, estimated: bool = False) -> str:
    """Input and output tokens; `~` marks an estimate."""
    return f"{'~' * estimated}in={count(given)} out={count(taken)}"


def count(number: int) -> str:
    """A number in at most four characters or so: 890, 2.1k, 45k, 1.2M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size * 0.9995:
            scaled = number / size
            return f"{scaled:.0f}{unit}" if scaled >= 9.95 else f"{scaled:.1f}".removesuffix(".0") + unit
    return str(number)


def elapsed(seconds: float) -> str:
    """A duration in its largest units: 0.4s, 12s, 3m05s, 2h07m, 3d04h."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    for size, unit, part, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02d}{name}"
    return f"{whole}s"


def cost_part(cost: float | None) -> str:
    """The cost of a run in a line of figures."""
    return "cost unknown" if cost is None else cost_text(cost)
