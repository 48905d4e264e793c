"""Progress events for several readers, each at its own pace."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from msgspec import structs

from deputy.core.progress import Progress, redacted
from deputy.processes.outgoing import process_redactor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from deputy.core.results import Result
    from deputy.interfaces.notify import Notifier
    from deputy.interfaces.questions import QuestionDispatcher

_UNREAD = 10_000


class Subscription:
    """The unread events of one reader; a slow reader loses the oldest."""

    def __init__(self) -> None:
        self._unread: deque[Progress] = deque(maxlen=_UNREAD)
        self._come = asyncio.Event()
        self._is_closed = False

    def put(self, progress: Progress) -> None:
        """Add an event."""
        self._unread.append(progress)
        self._come.set()

    def close(self) -> None:
        """End the stream after the unread events."""
        self._is_closed = True
        self._come.set()

    async def next(self) -> Progress | None:
        """The next event; None when the stream is closed."""
        while not self._unread:
            if self._is_closed:
                return None
            self._come.clear()
            await self._come.wait()
        return self._unread.popleft()


class Broadcaster:
    """Passes progress events to the program's callback, to event readers and to the question dispatcher."""

    def __init__(self, watch: Callable[[Progress], None] | None) -> None:
        self.questions: QuestionDispatcher | None = None
        self.notifier: Notifier | None = None
        self._watch = watch
        self._redactor = process_redactor()
        self._watchers: list[Subscription] = []
        self._ended: set[str] = set()

    async def events(self) -> AsyncIterator[Progress]:
        """The events from now on, until this is closed."""
        watcher = Subscription()
        self._watchers.append(watcher)
        try:
            while (progress := await watcher.next()) is not None:
                yield progress
        finally:
            self._watchers.remove(watcher)

    def close(self) -> None:
        """End the stream of every reader."""
        for watcher in self._watchers:
            watcher.close()

    def emit(self, progress: Progress) -> None:
        """Pass an event to all of them, redacted."""
        if progress.event == "completed":
            self._ended.add(progress.session_id)
        elif progress.event == "waiting" and self.questions is not None:
            self.questions.ask(progress)
        if self.notifier is not None and (progress.event == "waiting" or progress.status == "blocked"):
            self.notifier.notify(progress)
        if not self._watchers and self._watch is None:
            return
        shown = redacted(progress, self._redactor)
        for watcher in self._watchers:
            watcher.put(shown)
        if self._watch is not None:
            self._watch(shown)

    def emit_end(self, index: int, total: int, result: Result) -> None:
        """Emit the end of a subagent that emitted none: it was refused or cancelled, or had ended before."""
        outcome = result.outcome
        if outcome.session_id in self._ended:
            self._ended.discard(outcome.session_id)
            return
        reason = outcome.errors[0].type if outcome.errors else None
        text = Progress(event="completed", label=result.label, session_id=outcome.session_id, status=outcome.status)
        text = structs.replace(text, index=index, total=total, reason=reason, model=outcome.model)
        if outcome.usage.requests or outcome.duration_seconds:
            used, seconds = outcome.usage, outcome.duration_seconds
            text = structs.replace(text, input=used.input, output=used.output, cost=used.cost, seconds=seconds)
            text = structs.replace(text, estimated=used.estimated)
        self.emit(text)
        self._ended.discard(outcome.session_id)
