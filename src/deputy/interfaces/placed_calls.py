"""The runs of this program that workers carry out: their progress, read from the journal, and why one waits."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from deputy.core.errors import StorageError
from deputy.core.queue_names import no_worker
from deputy.interfaces.tree_news import TreeNews

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.core.progress import Progress
    from deputy.wiring import Runtime

LOOK_SECONDS = 0.2
_QUEUE_LOOKS = 10
"""After how many looks a run that has not begun is looked for on its queue."""


class PlacedCalls:
    """Follows runs in the journal and passes on their progress; use it with `async with`."""

    def __init__(self, runtime: Runtime, emit: Callable[[Progress], None]) -> None:
        self._runtime = runtime
        self._emit = emit
        self._group = asyncio.TaskGroup()
        self._following: dict[str, asyncio.Task[None]] = {}
        self.tell: Callable[[str], None] = logging.getLogger("deputy").warning
        """Gets the reason why a run waits, once."""

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._following.values():
            task.cancel()
        await self._group.__aexit__(None, None, None)

    def follow(self, run: str) -> None:
        """Pass on the progress of a run and everything below it, until it ends."""
        if run not in self._following:
            self._following[run] = self._group.create_task(self._follow(run))

    async def caught_up(self, run: str) -> None:
        """Wait until the progress of a run that has ended was passed on."""
        if (task := self._following.get(run)) is not None:
            await asyncio.wait({task})

    async def _follow(self, run: str) -> None:
        try:
            queries = await asyncio.to_thread(self._runtime.store.queries)
            if queries is None:
                return
            with queries:
                await self._pass_on(run, TreeNews(queries, run))
        except StorageError:
            # The caller that waits for the run gets the error.
            return
        finally:
            del self._following[run]

    async def _pass_on(self, run: str, news: TreeNews) -> None:
        looks, is_told = 0, False
        while True:
            for progress in await asyncio.to_thread(news.look):
                self._emit(progress)
            state = news.tree.get(run)
            if state is None or not state.is_live:
                return
            looks += 1
            if state.status == "requested" and not is_told and looks % _QUEUE_LOOKS == 0:
                is_told = await self._tell_why(run)
            await asyncio.sleep(LOOK_SECONDS)

    async def _tell_why(self, run: str) -> bool:
        holder = None
        with suppress(StorageError):
            holder = (await self._runtime.journal.read(lambda queries: queries.holders((run,)))).get(run)
        if holder is None or not holder.is_queued or holder.is_served:
            return False
        self.tell(no_worker(holder.queue))
        return True
