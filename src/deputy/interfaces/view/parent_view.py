"""The view of a parent agent: its text streamed, its subagents beneath it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from deputy.interfaces.text_lines import PlainStream, one_line

if TYPE_CHECKING:
    from deputy.core.progress import Progress
    from deputy.interfaces.view.renderers import View

_WIDTH = 100


class ParentView:
    """Shows a parent's text and tool calls, and passes the events of its subagents to the view."""

    def __init__(self, view: View, *, is_streaming: bool, is_quiet: bool = False) -> None:
        self._view = view
        self._is_streaming = is_streaming
        self._is_quiet = is_quiet
        self._children: set[str] = set()
        self._plain = PlainStream()
        self._is_in_line = False
        self._last_aside = ""
        self.has_streamed = False

    def emit(self, progress: Progress) -> None:
        """Show an event."""
        if progress.event == "started":
            self._children.add(progress.session_id)
            self._end_line()
            self._view.unpause(self)
        if progress.session_id in self._children or progress.event == "completed":
            self._view.emit(progress)
        elif not self._is_quiet:
            self._emit_parent(progress)

    def finish(self) -> None:
        """End the last line."""
        self._end_line()

    def _emit_parent(self, progress: Progress) -> None:
        match progress.event:
            case "text" if self._is_streaming:
                self._last_aside = ""
                self._view.pause(self)
                text = self._plain.feed(progress.content or "")
                sys.stdout.write(text)
                sys.stdout.flush()
                self._is_in_line = not text.endswith("\n") if text else self._is_in_line
                self.has_streamed = True
            case "tool_call" if progress.tool != "Delegate":
                self._aside(f"→ {progress.tool} {progress.args or ''}")
            case "retry":
                self._aside(f"↻ retrying, ignore the text so far: {progress.reason or ''}")
            case _:
                return

    def _aside(self, text: str) -> None:
        # A call that needed approval is emitted again when it runs.
        if text == self._last_aside:
            return
        self._last_aside = text
        self._end_line()
        # The live table is redrawn below the line.
        self._view.pause(self)
        sys.stderr.write(f"{one_line(text, _WIDTH)}\n")
        sys.stderr.flush()
        self._view.unpause(self)

    def _end_line(self) -> None:
        rest = self._plain.finish()
        if rest:
            sys.stdout.write(rest)
            self._is_in_line = not rest.endswith("\n")
        if self._is_in_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._is_in_line = False
