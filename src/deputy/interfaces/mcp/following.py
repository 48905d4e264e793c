"""What a client is told while it waits: a line about the subagents, at least every few seconds, always counting up."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

from deputy.interfaces.beside import beside
from deputy.interfaces.plain import one_line
from deputy.interfaces.view.board import Board, line, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from mcp.server.session import ServerSession

    from deputy.core.progress import Progress
    from deputy.interfaces.mcp.hub import Hub

HEARTBEAT_SECONDS = 5.0
"""Some clients give up after a minute without a word."""
GAP_SECONDS = 0.25
"""How long the next word waits for more to say: clients get lines to read, not every token."""
_LINE = 240


class Following:
    """What there is to say about one run now; what nobody heard in time is forgotten, never queued."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._board = Board(labels)
        self._said = ""
        self._come = asyncio.Event()
        self._asks = asyncio.Event()

    def tell(self, progress: Progress) -> None:
        """Something happened."""
        if progress.event == "waiting":
            self._asks.set()
        row = self._board.tell(progress, monotonic())
        if row is not None:
            self.say(text_of(line(row, monotonic())))

    def say(self, words: str) -> None:
        """Have something said."""
        self._said = one_line(words, _LINE)
        self._come.set()

    async def asked(self, seconds: float) -> None:
        """Wait until a run asks something, or so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asks.wait()
                # The event comes before the record of the question.
                await asyncio.sleep(GAP_SECONDS)
        self._asks.clear()

    async def next(self) -> str:
        """What to say next: as soon as there is something new, or after a while what is still so."""
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await self._come.wait()
        except TimeoutError:
            return self._said or "at work"
        self._come.clear()
        return self._said


@asynccontextmanager
async def followed(hub: Hub, session: ServerSession, run: str, labels: Sequence[str]) -> AsyncGenerator[Following]:
    """Keep the client of a request told of a run while the block waits for it."""
    following = Following(labels)
    with hub.follow(run, following):
        async with beside(_tell(session, following)):
            yield following


async def _tell(session: ServerSession, following: Following) -> None:
    count = 0
    while True:
        words = await following.next()
        count += 1
        await session.report_progress(count, message=words)
        await asyncio.sleep(GAP_SECONDS)
