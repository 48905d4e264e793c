"""Gives freed memory back to the system: without it a worker stays as large as in its busiest moment."""

from __future__ import annotations

import asyncio
import ctypes

TRIM_SECONDS = 15.0


async def give_back_memory() -> None:
    """Let the C library give back what is free, from time to time; only glibc keeps it and can do so."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(TRIM_SECONDS)
        await asyncio.to_thread(trim, 0)
