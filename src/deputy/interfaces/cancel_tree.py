"""Cancel a run tree: on request, or because the task that awaits it is cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from deputy.core.errors import StorageError, UnknownRun
from deputy.engine.call import DELEGATE

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from deputy.core.state import State
    from deputy.runtime.engine import LocalEngine
    from deputy.wiring import Runtime

_STOP_SECONDS = 3.0
"""Time for a cancelled call to end; after it, recovery ends the rest."""

_R = TypeVar("_R")


async def stop(runtime: Runtime, run: str) -> bool:
    """Cancel a run and all below it; True if any of them was live or blocked."""
    state = await runtime.engine.get(run)
    if state is None:
        raise UnknownRun(run)
    is_open = _is_open(state) or any(map(_is_open, await runtime.journal.descendants(run)))
    await runtime.engine.cancel(run)
    if is_open and state.parent is not None:
        await _stop_caller(runtime, state.parent)
    return is_open


async def wait_until_finished(runtime: Runtime, run: str) -> None:
    """Wait until every descendant has finished."""
    while live := [state.run for state in await runtime.journal.descendants(run) if state.is_live]:
        for below in live:
            await runtime.engine.result(below)


async def cancel_remaining(runtime: Runtime, run: str) -> None:
    """Cancel the live descendants of a call that has ended; blocked ones keep their question."""
    for state in await runtime.journal.descendants(run):
        if state.is_live:
            await runtime.engine.cancel(state.run)


async def _stop_caller(runtime: Runtime, caller: str) -> None:
    """Cancel a blocked call when the last of its open tasks was cancelled."""
    state = await runtime.engine.get(caller)
    if state is None or state.command != DELEGATE or state.status != "blocked":
        return
    if not any(_is_open(one) for one in await runtime.journal.descendants(caller)):
        await runtime.engine.cancel(caller)


def _is_open(state: State) -> bool:
    return state.is_live or state.status == "blocked"


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
