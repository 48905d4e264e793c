"""Progress notifications of a waiting call: one line about the subagents, at least every few seconds."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

from deputy.interfaces.background import background
from deputy.interfaces.text_lines import one_line
from deputy.interfaces.view.progress_table import ProgressTable, line, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from mcp.server.session import ServerSession

    from deputy.core.progress import Progress
    from deputy.interfaces.mcp.server_state import ServerState

HEARTBEAT_SECONDS = 5.0
"""Some clients time out after a minute without a notification."""
GAP_SECONDS = 0.25
"""Least time between two notifications: clients get lines, not every token."""
_LINE = 240


class ProgressNotifier:
    """The latest line about one run; older lines are dropped, never queued."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._board = ProgressTable(labels)
        self._said = ""
        self._come = asyncio.Event()
        self._asks = asyncio.Event()

    def emit(self, progress: Progress) -> None:
        """Take in an event."""
        if progress.event == "waiting":
            self._asks.set()
        row = self._board.emit(progress, monotonic())
        if row is not None:
            self.notify(text_of(line(row, monotonic())))

    def notify(self, words: str) -> None:
        """Set the next line."""
        self._said = one_line(words, _LINE)
        self._come.set()

    async def asked(self, seconds: float) -> None:
        """Wait until a run asks something, at most so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asks.wait()
                # The event of a question comes before its record.
                await asyncio.sleep(GAP_SECONDS)
        self._asks.clear()

    async def next(self) -> str:
        """The next line: a new one, or the last one again after a while."""
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await self._come.wait()
        except TimeoutError:
            return self._said or "running"
        self._come.clear()
        return self._said


@asynccontextmanager
async def followed(
    server_state: ServerState, session: ServerSession, run: str, labels: Sequence[str]
) -> AsyncGenerator[ProgressNotifier]:
    """Send progress of a run to the client while the block waits."""
    following = ProgressNotifier(labels)
    with server_state.follow(run, following):
        async with background(_emit(session, following)):
            yield following


async def _emit(session: ServerSession, following: ProgressNotifier) -> None:
    count = 0
    while True:
        words = await following.next()
        count += 1
        await session.report_progress(count, message=words)
        await asyncio.sleep(GAP_SECONDS)
