"""What happens, for all who watch: each reader takes it at a pace of its own."""

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
    from deputy.interfaces.questions import QuestionDispatcher

_UNREAD = 10_000


class Subscription:
    """What one reader of events has not read yet; when it is too slow, the oldest go first."""

    def __init__(self) -> None:
        self._unread: deque[Progress] = deque(maxlen=_UNREAD)
        self._come = asyncio.Event()
        self._is_closed = False

    def put(self, progress: Progress) -> None:
        """Something happened."""
        self._unread.append(progress)
        self._come.set()

    def close(self) -> None:
        """Nothing more will happen."""
        self._is_closed = True
        self._come.set()

    async def next(self) -> Progress | None:
        """The next thing that happened; None when nothing more will."""
        while not self._unread:
            if self._is_closed:
                return None
            self._come.clear()
            await self._come.wait()
        return self._unread.popleft()


class Broadcaster:
    """Whoever wants to know what subagents do: the program, those who read events, and who answers questions."""

    def __init__(self, watch: Callable[[Progress], None] | None) -> None:
        self.questions: QuestionDispatcher | None = None
        """Who answers what subagents ask."""
        self._watch = watch
        self._watchers: list[Subscription] = []
        self._ended: set[str] = set()

    async def events(self) -> AsyncIterator[Progress]:
        """What happens from now on, until this is closed."""
        watcher = Subscription()
        self._watchers.append(watcher)
        try:
            while (progress := await watcher.next()) is not None:
                yield progress
        finally:
            self._watchers.remove(watcher)

    def close(self) -> None:
        """Nothing more will happen."""
        for watcher in self._watchers:
            watcher.close()

    def emit(self, progress: Progress) -> None:
        """Something has happened."""
        if progress.event == "completed":
            self._ended.add(progress.session_id)
        elif progress.event == "waiting" and self.questions is not None:
            self.questions.ask(progress)
        for watcher in self._watchers:
            watcher.put(progress)
        if self._watch is not None:
            self._watch(progress)

    def emit_end(self, index: int, total: int, result: Result) -> None:
        """Tell of an end that the subagent itself could not: it was refused or stopped, or had ended before."""
        outcome = result.outcome
        if outcome.session_id in self._ended:
            self._ended.discard(outcome.session_id)
            return
        reason = outcome.errors[0].type if outcome.errors else None
        text = Progress(event="completed", label=result.label, session_id=outcome.session_id, status=outcome.status)
        text = structs.replace(text, index=index, total=total, reason=reason)
        if outcome.usage.requests or outcome.duration_seconds:
            used, seconds = outcome.usage, outcome.duration_seconds
            text = structs.replace(text, input=used.input, output=used.output, cost=used.cost, seconds=seconds)
        self.emit(redacted(text, process_redactor()))
        self._ended.discard(outcome.session_id)
