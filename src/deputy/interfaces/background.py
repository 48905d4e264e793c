"""Run a coroutine in the background of a block, or race two coroutines."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from deputy.core.errors import DeputyError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

_One = TypeVar("_One")
_Other = TypeVar("_Other")


@asynccontextmanager
async def background(work: Coroutine[Any, Any, object]) -> AsyncGenerator[None]:
    """Run work until the body ends; an exception of the body is raised as it is, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            try:
                yield
            finally:
                task.cancel()
    except BaseExceptionGroup as raised:
        raise cause_of(raised) from None


async def first_of(one: Coroutine[Any, Any, _One], other: Coroutine[Any, Any, _Other]) -> _One | _Other:
    """The result of the work that ends first; the other is cancelled."""
    try:
        async with asyncio.TaskGroup() as group:
            works: tuple[asyncio.Task[Any], ...] = (group.create_task(one), group.create_task(other))
            ended, left = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
            for work in left:
                work.cancel()
    except BaseExceptionGroup as raised:
        raise cause_of(raised) from None
    return ended.pop().result()


def cause_of(raised: BaseExceptionGroup[BaseException]) -> BaseException:
    """The only error of a group, else its first DeputyError, else the group itself."""
    leaves = list(_innermost(raised))
    if len(leaves) == 1:
        return leaves[0]
    return next((one for one in leaves if isinstance(one, DeputyError)), raised)


def _innermost(raised: BaseException) -> list[BaseException]:
    if not isinstance(raised, BaseExceptionGroup):
        return [raised]
    group = cast("BaseExceptionGroup[BaseException]", raised)
    return [leaf for one in group.exceptions for leaf in _innermost(one)]
