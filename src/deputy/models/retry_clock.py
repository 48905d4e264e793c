"""Clock and randomness for retries, replaceable in tests."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryClock:
    """A monotonic clock, the wall clock, sleep, and a random number between 0 and 1."""

    clock: Callable[[], float] = _loop_time
    wall_clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    draw: Callable[[], float] = random.random
