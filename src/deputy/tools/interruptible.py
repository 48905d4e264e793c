"""Blocking work in a thread that a cancel can stop."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_STOP_SECONDS = 10

Slots: TypeAlias = AbstractAsyncContextManager[object]
"""A semaphore that limits the programs that all agents run at once."""

_Result = TypeVar("_Result")


class StopSignal:
    """A stop request that `select` can wait for together with output."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def fileno(self) -> int:
        """The descriptor that becomes readable when a stop is requested."""
        return self._reading

    def request_stop(self) -> None:
        """Make the descriptor readable."""
        os.write(self._writing, b"!")

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self._reading)
        os.close(self._writing)


async def interruptible(job: Callable[[StopSignal], _Result]) -> _Result:
    """Run a blocking job in its own thread; a cancel requests a stop and waits for the job."""
    stop = StopSignal()
    thread = ThreadPoolExecutor(max_workers=1)
    done = asyncio.wrap_future(thread.submit(job, stop))
    thread.shutdown(wait=False)
    done.add_done_callback(lambda _: stop.close())
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        if not done.done():
            stop.request_stop()
            await asyncio.wait({done}, timeout=_STOP_SECONDS)
        raise
