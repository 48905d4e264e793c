"""A limit in time around a block, where there is one."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from deputy.engine.shared_timer import Timeout

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


def timeout(seconds: float | None) -> AbstractAsyncContextManager[Any]:
    """As `asyncio.timeout`, which every model and tool call would pay for; free of charge where there is no limit."""
    return nullcontext() if seconds is None else Timeout(seconds)
