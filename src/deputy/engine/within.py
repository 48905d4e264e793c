"""A limit in time around a block, where there is one."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


def within(seconds: float | None) -> AbstractAsyncContextManager[Any]:
    """`asyncio.timeout`, but free of charge where there is no limit: every model and tool call is within one."""
    return nullcontext() if seconds is None else asyncio.timeout(seconds)
