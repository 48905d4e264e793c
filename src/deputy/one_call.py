"""One call without a client of your own: `delegate` where an event loop runs, `run_sync` where none does."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from deputy.client import Deputy
from deputy.core.errors import Unquoted, UsageError
from deputy.interfaces.validation import as_tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.results import Outcomes
    from deputy.core.task import Task


async def delegate(
    tasks: Sequence[Task | str], *, model: str | None = None, concurrency: int | None = None, **options: Any
) -> Outcomes:
    """Delegate once, in a notebook or another async program; a text is the prompt of a task.

    The options are those of Deputy.
    """
    given = as_tasks(tasks)
    async with Deputy(model, **options) as deputy:
        return await deputy.delegate(given, concurrency=concurrency)


def run_sync(*tasks: Task | str, model: str | None = None, concurrency: int | None = None, **options: Any) -> Outcomes:
    """Delegate once, from a script without an event loop; a text is the prompt of a task.

    The options are those of Deputy.
    """
    given = as_tasks(tasks)
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        remedy = "await `deputy.delegate([…])` here instead, as in every notebook and async function"
        raise UsageError("run_sync", Unquoted("a running event loop"), remedy)
    return asyncio.run(delegate(given, model=model, concurrency=concurrency, **options))
