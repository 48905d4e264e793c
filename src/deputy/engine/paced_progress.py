"""Progress at a bounded rate: text, thinking and token counts of a run are joined; everything else passes at once."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

from msgspec import structs

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.core.progress import Progress
    from deputy.engine.timeouts import SharedTimer, TimerEntry

TEXT_SECONDS, COUNT_SECONDS = 0.1, 1.0
"""The shortest time after a text, and after a count of thinking or tokens."""
_PACED = ("text", "thinking", "tokens")


class PacedProgress:
    """The progress of one run; what is held back follows after the interval, or before the next other event."""

    def __init__(self, pass_on: Callable[[Progress], None], timer: SharedTimer) -> None:
        self._pass_on = pass_on
        self._shared = timer
        self._held: dict[str, Progress] = {}
        """By kind, in the order of their latest events."""
        self._texts: list[str] = []
        self._timer: TimerEntry | None = None
        self._passed_at = -inf

    def emit(self, progress: Progress) -> None:
        """Pass an event on, now or soon."""
        if progress.event not in _PACED:
            self.flush()
            self._pass_on(progress)
            return
        is_text = progress.event == "text"
        due = self._passed_at + (TEXT_SECONDS if is_text or self._texts else COUNT_SECONDS)
        now = asyncio.get_running_loop().time()
        if due <= now and not self._held:
            self._stop_timer()
            self._passed_at = now
            self._pass_on(progress)
            return
        if is_text:
            self._texts.append(progress.content or "")
        self._held.pop(progress.event, None)
        self._held[progress.event] = progress
        if due <= now:
            self._pass_held()
        elif self._timer is None or due < self._timer.at:
            self._stop_timer()
            self._timer = self._shared.set_at(due, self._pass_held)

    def flush(self) -> None:
        """Pass on what is held back."""
        if not self._held:
            return
        held, texts, self._held, self._texts = self._held, self._texts, {}, []
        for kind, progress in held.items():
            self._pass_on(structs.replace(progress, content="".join(texts)) if kind == "text" else progress)

    def close(self) -> None:
        """Pass on what is held back, and stop the timer."""
        self.flush()
        self._stop_timer()

    def _pass_held(self) -> None:
        self._stop_timer()
        if self._held:
            self._passed_at = asyncio.get_running_loop().time()
            self.flush()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._shared.cancel(self._timer)
            self._timer = None
