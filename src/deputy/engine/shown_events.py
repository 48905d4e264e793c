"""What watchers have seen of a run: when a suspended run continues, its replay shows nothing again."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from deputy.core.progress import Progress
    from deputy.engine.ports import RunContext

_STREAMED = ("text", "thinking")
"""Only a model call emits these, which a replay does not repeat."""
_MOST = 64


class ShownEvents:
    """The questions of one run, and its other events since the last model call."""

    def __init__(self) -> None:
        self._flow: ref[RunContext] | None = None
        """A weak reference: the context of a suspended run is freed."""
        self._shown: list[Progress] = []
        self._before: list[Progress] = []
        """Seen before the run continued, and not repeated yet."""

    def is_new(self, run: RunContext, progress: Progress) -> bool:
        """Whether watchers have not seen this event."""
        if self._flow is None or self._flow() is not run:
            self._flow, self._before, self._shown = ref(run), self._shown, []
        if progress.event == "tokens":
            self._shown = [one for one in self._shown if one.event == "waiting"]
        if progress.event not in _STREAMED:
            self._shown.append(progress)
            del self._shown[:-_MOST]
        if progress in self._before:
            self._before.remove(progress)
            return False
        # The first new event ends the replay: the same question may be asked a second time.
        self._before.clear()
        return True
