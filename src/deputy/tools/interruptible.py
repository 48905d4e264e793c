"""Blocking work off the event loop that a cancel really stops."""

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
"""Room for one more at a time, such as a semaphore: a thousand agents must not start a thousand programs at once."""

_Result = TypeVar("_Result")


class StopSignal:
    """A wish to stop that can be waited for together with output."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def fileno(self) -> int:
        """What becomes readable once it is wished."""
        return self._reading

    def request_stop(self) -> None:
        """Ask whoever watches to stop."""
        os.write(self._writing, b"!")

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self._reading)
        os.close(self._writing)


async def interruptible(job: Callable[[StopSignal], _Result]) -> _Result:
    """Do a blocking job in a thread of its own; a cancel asks it to stop and waits until it has."""
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
