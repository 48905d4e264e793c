"""Progress at a bounded rate: text, thinking and token counts of a run are joined; everything else passes at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import structs

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.core.progress import Progress

TEXT_SECONDS, COUNT_SECONDS = 0.1, 1.0
"""The shortest time after a text, and after a count of thinking or tokens."""
_PACED = ("text", "thinking", "tokens")


class PacedProgress:
    """The progress of one run; what is held back follows after the interval, or before the next other event."""

    def __init__(self, pass_on: Callable[[Progress], None]) -> None:
        self._pass_on = pass_on
        self._held: dict[str, Progress] = {}
        """By kind, in the order of their latest events."""
        self._texts: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._seconds = 0.0

    def emit(self, progress: Progress) -> None:
        """Pass an event on, now or soon."""
        if progress.event not in _PACED:
            self.flush()
            self._pass_on(progress)
        elif self._timer is None:
            self._wait(is_text=progress.event == "text")
            self._pass_on(progress)
        else:
            if progress.event == "text":
                self._texts.append(progress.content or "")
                if self._seconds > TEXT_SECONDS:
                    self._timer.cancel()
                    self._wait(is_text=True)
            self._held.pop(progress.event, None)
            self._held[progress.event] = progress

    def flush(self) -> None:
        """Pass on what is held back."""
        held, texts, self._held, self._texts = self._held, self._texts, {}, []
        for kind, progress in held.items():
            self._pass_on(structs.replace(progress, content="".join(texts)) if kind == "text" else progress)

    def close(self) -> None:
        """Pass on what is held back, and stop the timer."""
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, *, is_text: bool) -> None:
        self._seconds = TEXT_SECONDS if is_text else COUNT_SECONDS
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._held:
            self._wait(is_text="text" in self._held)
            self.flush()
