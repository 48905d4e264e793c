"""A limit in time around a block, where there is one."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from deputy.engine.alarms import Within

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


def within(seconds: float | None) -> AbstractAsyncContextManager[Any]:
    """As `asyncio.timeout`, which every model and tool call would pay for; free of charge where there is no limit."""
    return nullcontext() if seconds is None else Within(seconds)
