"""Track awaited calls; cancel a call's run tree when its awaiter is cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from deputy.core.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from deputy.runtime.engine import LocalEngine

_STOP_SECONDS = 3.0
"""Time for a cancelled call to end; after it, recovery ends the rest."""

_R = TypeVar("_R")


class AwaitedCalls:
    """The calls that tasks of this process wait for."""

    def __init__(self) -> None:
        self._calls: dict[asyncio.Future[None], str] = {}

    async def add(self, engine: LocalEngine[Any], session_id: str, work: Awaitable[_R]) -> _R:
        """Wait for a call and record its delivery; when the awaiter is cancelled, cancel the call's run tree first."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls[over] = session_id
        try:
            done = await work
            await engine.deliver(session_id, "caller")
            return done
        except asyncio.CancelledError:
            # Errors of the cleanup must not replace the cancellation.
            with suppress(TimeoutError, StorageError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await engine.cancel(session_id)
                    await engine.result(session_id)
            raise
        finally:
            del self._calls[over]
            over.set_result(None)

    async def end(self, engine: LocalEngine[Any]) -> None:
        """Cancel the calls that other tasks still wait for, so that these tasks get outcomes."""
        if not self._calls:
            return
        waited_for = set(self._calls)
        with suppress(TimeoutError, StorageError):
            async with asyncio.timeout(_STOP_SECONDS):
                for session_id in set(self._calls.values()):
                    await engine.cancel(session_id)
                await asyncio.wait(waited_for)
