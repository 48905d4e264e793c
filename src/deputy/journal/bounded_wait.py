"""Wait for a blocking call, for a bounded time."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CLOSE_SECONDS = 35.0
"""Longer than a transaction may wait for the lock."""


async def bounded_wait(do: Callable[[], object], seconds: float = CLOSE_SECONDS) -> bool:
    """Run a blocking call in a daemon thread; whether it ended in time."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def work() -> None:
        try:
            do()
        finally:
            # The loop may be closed by now.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(done.set)

    threading.Thread(target=work, name="deputy-closing", daemon=True).start()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await done.wait()
    return done.is_set()
