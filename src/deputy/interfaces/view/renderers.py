"""Renderers of the progress table, live on a terminal or line by line, and of a parent agent's text."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from deputy.core.progress import retry_text
from deputy.interfaces.background import background
from deputy.interfaces.text_lines import PlainStream, one_line, plain
from deputy.interfaces.view.progress_table import (
    ProgressTable,
    heading,
    line,
    moment,
    text_of,
    tool_error_text,
)
from deputy.interfaces.view.terminal_painter import TerminalPainter, echo_off, echo_on, keys_on, terminal_size

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from rich.text import Text

    from deputy.core.progress import Progress
    from deputy.interfaces.view.progress_table import Span, Tone

FRAME_SECONDS = 0.125
_ASIDE_WIDTH = 100
MAX_WAIT_SECONDS = 0.5
"""How long the live view waits for the first request: importing rich would delay it."""

_HANDS_ON = ("Delegate", "Subtask")

_STYLES: dict[Tone, str] = {
    "plain": "",
    "label": "bold",
    "good": "green",
    "warning": "yellow",
    "bad": "red",
    "quiet": "dim",
}


class View:
    """Shows progress events; this one shows nothing."""

    def emit(self, progress: Progress) -> None:
        """Show an event."""

    def pause(self, by: object, *, is_kept: bool = False) -> None:
        """Give up the terminal; a table that is kept stays above the cursor."""

    def unpause(self, by: object) -> None:
        """Take the terminal back."""

    def follow(self, below: str) -> bool:
        """Go on with the kept table, above this text; then keys come one by one, without an echo."""
        return False

    def unfollow(self) -> None:
        """Leave the kept table as it is: something was typed."""


@asynccontextmanager
async def open_view(
    labels: Sequence[str] = (), *, is_quiet: bool = False, is_live: bool = True
) -> AsyncGenerator[View]:
    """The view for standard error: live on a terminal if it may be, lines elsewhere, or none."""
    if is_quiet:
        yield View()
    elif is_live and is_terminal():
        live = LiveView(ProgressTable(labels))
        # From the beginning, and also while a parent's text is printed: a key pressed meanwhile would tear it.
        echo_off()
        async with background(live.paint()):
            try:
                yield live
            finally:
                live.finish()
                echo_on()
    else:
        lines = LinesView(ProgressTable(labels))
        yield lines
        lines.finish()


def is_terminal() -> bool:
    """Whether standard error is a terminal with cursor control."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


class LinesView(View):
    """One line for each event worth a line."""

    def __init__(self, table: ProgressTable) -> None:
        self._table = table
        self._has_heading = False
        self._handed_on: dict[str, str] = {}
        """By session id, the last Delegate or Subtask call shown."""
        self._ended: dict[str, str] = {}
        """By session id, the ending shown: of a task that ended before a resume it comes again with the results."""

    def emit(self, progress: Progress) -> None:
        """Show an event."""
        now = time.monotonic()
        if progress.event == "started" and self._table.is_over:
            self._table, self._has_heading = ProgressTable(), False
        row = self._table.emit(progress, now)
        if row is None or progress.event in ("text", "thinking", "tokens"):
            return
        if progress.event == "tool_call" and progress.tool in _HANDS_ON:
            # A run that goes on in another process emits its call again.
            if self._handed_on.get(row.session_id) == row.activity:
                return
            self._handed_on[row.session_id] = row.activity
        if row.session_id:
            if row.is_over and self._ended.get(row.session_id) == row.activity:
                return
            self._ended[row.session_id] = row.activity if row.is_over else ""
        if not self._has_heading:
            self._has_heading = True
            _print(heading(self._table.size))
        _print(text_of(line(row, moment(row, progress, now))))
        if self._table.is_over:
            self._total()

    def finish(self) -> None:
        """Print the total, unless it was printed."""
        if self._has_heading and not self._table.is_over:
            self._total()

    def _total(self) -> None:
        _print(text_of(self._table.total(time.monotonic())))


class LiveView(View):
    """A table that is redrawn as events arrive."""

    def __init__(self, table: ProgressTable) -> None:
        self._table = table
        self._painter: TerminalPainter | None = None
        self._shown: ProgressTable | None = None
        """The table that was drawn for the last time."""
        self._paused_by: set[object] = set()
        """The owners of the terminal; it is free when all have given it back."""
        self._asked_by: set[object] = set()
        """The owners that ask the person, who sees what is typed."""
        self._kept: TerminalPainter | None = None
        """The picture that stays above a question."""
        self._rows_up: int | None = None
        """How far above the cursor it is, while it is drawn again."""
        self._size = (0, 0)
        """The size of the terminal for which that was counted."""
        self._reads_keys = False
        self._is_busy = asyncio.Event()
        self._was_stopped = False
        """Whether the process was stopped (Ctrl-Z) and continues."""

    def emit(self, progress: Progress) -> None:
        """Show an event."""
        if progress.event == "started" and self._table.is_over:
            self.finish()
            self._table = ProgressTable()
        self._table.emit(progress, time.monotonic())
        if progress.event != "started":
            self._is_busy.set()

    def pause(self, by: object, *, is_kept: bool = False) -> None:
        """Give up the terminal; an unfinished table is erased, unless it is kept."""
        self.show()
        self._paused_by.add(by)
        self._rows_up, self._kept = None, (self._painter or self._kept) if is_kept else None
        self._stop(is_erased=not (is_kept or self._table.is_over))
        if is_kept:
            self._asked_by.add(by)

    def unpause(self, by: object) -> None:
        """Take the terminal back from one owner."""
        self._paused_by.discard(by)
        if by in self._asked_by:
            self._asked_by.discard(by)
            self._kept, self._rows_up, self._reads_keys = None, None, False
            echo_on()
            echo_off()

    def follow(self, below: str) -> bool:
        """Go on with the kept table, unless the text below it has moved it off the screen."""
        self._size = terminal_size()
        self._rows_up = None if self._kept is None or self._table.is_over else self._kept.rows_up(below)
        self._reads_keys = self._rows_up is not None
        if self._reads_keys:
            keys_on()
        else:
            echo_on()
        return self._reads_keys

    def unfollow(self) -> None:
        """Leave the kept table as it is."""
        self._rows_up = None

    async def paint(self) -> None:
        """Redraw the table until cancelled."""
        try:
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                await self._is_busy.wait()
        except TimeoutError:
            pass
        await asyncio.to_thread(_load)
        # Not a handler of the loop, which would run after the next frame.
        signal.signal(signal.SIGCONT, self._continued)
        while True:
            if self._was_stopped and not self._asked_by:
                # The shell has switched the echo on.
                echo_off()
            self.show()
            self._show_kept()
            await asyncio.sleep(FRAME_SECONDS)

    def _continued(self, _signal: int, _frame: object) -> None:
        self._was_stopped = True

    def show(self) -> None:
        """Draw the table once."""
        if self._table.began is None or self._paused_by or self._shown is self._table:
            return
        if self._painter is None:
            self._painter = _start()
        elif self._was_stopped:
            self._painter.continued()
        self._was_stopped = False
        self._paint(self._painter, terminal_size()[1] - 1)

    def _show_kept(self) -> None:
        if self._was_stopped and self._reads_keys:
            # The shell has printed since, and has switched the echo on.
            self._rows_up, self._was_stopped = None, False
            keys_on()
        if self._kept is not None and self._rows_up is not None:
            if terminal_size() != self._size:
                # The text below has moved: what is drawn now could cover the question.
                self.unfollow()
                return
            lines = self._table.lines(time.monotonic(), self._kept.height)
            self._kept.draw_above([_picture(spans) for spans in lines], self._rows_up)

    def finish(self) -> None:
        """Draw the whole table for the last time."""
        self.show()
        if self._painter is not None:
            self._paint(self._painter, None)
        self._stop()

    def _paint(self, painter: TerminalPainter, most: int | None) -> None:
        painter.draw([_picture(spans) for spans in self._table.lines(time.monotonic(), most)])

    def _stop(self, *, is_erased: bool = False) -> None:
        if self._painter is not None:
            self._painter.stop(is_erased=is_erased)
            self._painter = None
            self._shown = self._table if self._table.is_over else None


class ParentView(View):
    """Shows a parent's text and tool calls, and passes the events of its subagents to the view."""

    def __init__(
        self, view: View, *, is_streaming: bool, is_quiet: bool = False, shows_questions: bool = False
    ) -> None:
        self._view = view
        self._is_streaming = is_streaming
        self._shows_questions = shows_questions
        """Whether the parent's questions are asked elsewhere."""
        self._is_quiet = is_quiet
        self._children: set[str] = set()
        self._plain = PlainStream()
        self._blocks = MarkdownBlocks()
        self._last_aside = ""
        self.has_streamed = False

    def emit(self, progress: Progress) -> None:
        """Show an event."""
        if progress.event == "started":
            self._children.add(progress.session_id)
            self.finish()
            self._view.unpause(self)
        if progress.session_id in self._children or progress.event == "completed":
            self._view.emit(progress)
        elif not self._is_quiet:
            self._emit_parent(progress)

    def finish(self) -> None:
        """Print the rest of the text."""
        self._print([*self._blocks.feed(self._plain.finish()), *self._blocks.finish()])

    def pause(self, by: object, *, is_kept: bool = False) -> None:
        """Give up the terminal, after the text so far."""
        self.finish()
        self._view.pause(by, is_kept=is_kept)

    def unpause(self, by: object) -> None:
        """Take the terminal back."""
        self._view.unpause(by)

    def follow(self, below: str) -> bool:
        """Go on with the kept table."""
        return self._view.follow(below)

    def unfollow(self) -> None:
        """Leave the kept table as it is."""
        self._view.unfollow()

    def _print(self, blocks: Sequence[str]) -> None:
        for block in blocks:
            if self.has_streamed:
                sys.stdout.write("\n")
            self.has_streamed = True
            show_markdown(f"{block}\n")

    def _emit_parent(self, progress: Progress) -> None:
        match progress.event:
            case "text" if self._is_streaming:
                self._last_aside = ""
                self._view.pause(self)
                self._print(self._blocks.feed(self._plain.feed(progress.content or "")))
            case "tool_call" if progress.tool != "Delegate":
                self._aside(f"→ {progress.tool} {progress.args or ''}")
            case "waiting" if self._shows_questions:
                self._aside(f"? asks: {progress.content or ''}")
            case "tool_error":
                self._aside(f"✗ {tool_error_text(progress)}")
            case "retry":
                ignored = "; ignore the text so far" if self.has_streamed else ""
                self._aside(f"↻ {retry_text(progress)}{ignored}")
            case _:
                return

    def _aside(self, text: str) -> None:
        # A run that goes on in another process emits its call again.
        if text == self._last_aside:
            return
        self._last_aside = text
        self.finish()
        # The live table is redrawn below the line.
        self._view.pause(self)
        sys.stderr.write(f"{one_line(text, min(_ASIDE_WIDTH, terminal_size()[0]))}\n")
        sys.stderr.flush()
        self._view.unpause(self)


class MarkdownBlocks:
    """Cuts streamed Markdown into blocks that can be rendered alone: at blank lines outside of code and lists."""

    def __init__(self) -> None:
        self._line: list[str] = []
        self._block: list[str] = []
        self._fence = ""

    def feed(self, text: str) -> list[str]:
        """Take in a piece of text; returns the blocks that are complete."""
        first, *more = text.split("\n")
        self._line.append(first)
        done: list[str] = []
        for piece in more:
            line, self._line = "".join(self._line), [piece]
            done += self._begun(line)
            self._block.append(line)
            self._note_fence(line.strip())
        return [*done, *self._begun("".join(self._line[:2]))]

    def finish(self) -> list[str]:
        """The rest."""
        rest = "\n".join([*self._block, "".join(self._line)]).strip("\n")
        self._line, self._block, self._fence = [], [], ""
        return [rest] if rest.strip() else []

    def _begun(self, line: str) -> list[str]:
        """The block before this line, if the line begins a new one; an indented line may continue a list."""
        if self._fence or not self._block or self._block[-1].strip() or not line[:1].strip():
            return []
        done, self._block = "\n".join(self._block).strip("\n"), []
        return [done] if done else []

    def _note_fence(self, line: str) -> None:
        mark = line[:3]
        if not self._fence and mark in ("```", "~~~"):
            self._fence = mark
        elif self._fence and mark == self._fence and not line.strip(mark[0]):
            self._fence = ""


# --- rich, imported late ----------------------------------------------------------------------------------------------


def show_markdown(text: str) -> None:
    """Print Markdown: rendered on a terminal, plain anywhere else."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "") in ("", "dumb"):
        sys.stdout.write(plain(text))
        sys.stdout.flush()
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(Markdown(plain(text), hyperlinks=False))
    # Lists and tables come with blank lines of their own.
    sys.stdout.write(captured.get().strip("\n") + "\n")
    sys.stdout.flush()


def _load() -> None:
    from importlib import import_module

    for name in ("rich.console", "rich.text"):
        import_module(name)


def _start() -> TerminalPainter:
    from rich.console import Console

    return TerminalPainter(Console(stderr=True, highlight=False, markup=False, emoji=False))


def _picture(spans: Sequence[Span]) -> Text:
    from rich.text import Text

    return Text.assemble(*((text, _STYLES[tone]) for text, tone in spans))


def _print(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
