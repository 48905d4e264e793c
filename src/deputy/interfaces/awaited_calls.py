"""The calls of a program that somebody waits for: each is taken over whole, or stopped with all that is below it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from deputy.core.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from deputy.runtime.engine import LocalEngine

_STOP_SECONDS = 3.0
"""How long a call has to stop; what does not stop in time is left to whoever comes next."""

_R = TypeVar("_R")


class AwaitedCalls:
    """Who waits for which call."""

    def __init__(self) -> None:
        self._calls: dict[asyncio.Future[None], str] = {}
        """By what tells that somebody waits no more."""

    async def add(self, engine: LocalEngine[Any], session_id: str, work: Awaitable[_R]) -> _R:
        """Wait for a call and take it over; one that is cancelled stops the whole subtree before it goes."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls[over] = session_id
        try:
            done = await work
            await engine.deliver(session_id, "caller")
            return done
        except asyncio.CancelledError:
            # A cancel from above is never turned into another error.
            with suppress(TimeoutError, StorageError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await engine.cancel(session_id)
                    await engine.result(session_id)
            raise
        finally:
            del self._calls[over]
            over.set_result(None)

    async def end(self, engine: LocalEngine[Any]) -> None:
        """Stop the calls that other tasks still wait for, which then get their outcomes."""
        if not self._calls:
            return
        waited_for = set(self._calls)
        with suppress(TimeoutError, StorageError):
            async with asyncio.timeout(_STOP_SECONDS):
                for session_id in set(self._calls.values()):
                    await engine.cancel(session_id)
                await asyncio.wait(waited_for)
