"""Run many children concurrently, with results in the order of the tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import structs

from deputy.core.events import Joined, MessageAdded, ModelCallEnded, Requested, Spawned, ToolCallEnded
from deputy.core.request import Grant, Hop, Lineage, Request, task_hop
from deputy.core.results import Result
from deputy.core.task import options_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deputy.core.fallback import Routing
    from deputy.core.task import Task, TaskOptions
    from deputy.engine.ports import RunContext


_IDS_AT_ONCE = 1000


async def fan_out(
    run: RunContext,
    key: str,
    tasks: Sequence[Task],
    *,
    concurrency: int,
    model: str,
    grant: Grant,
    root: str = "",
    routing: Routing | None = None,
    messages: Mapping[str, str] | None = None,
    is_counted: bool = True,
    context_digests: Mapping[str, str] | None = None,
) -> tuple[Result, ...]:
    """Run each task in a child; a failed child does not stop the others.

    A later round restarts unfinished children of earlier rounds with their messages. Context files must have the
    approved digests.
    """
    gate = asyncio.Semaphore(concurrency)
    # A later round restarts and joins the children of earlier rounds instead of spawning new ones.
    before = {
        record.key.rpartition("/")[2]: record.event.child for record in run.history if isinstance(record.event, Spawned)
    }

    # Draw all ids before the first spawn, so that children start in the order of their tasks.
    ids = await _drawn(run, key, len(tasks))

    async def one(index: int, task: Task) -> Result:
        async with gate:
            name = f"{key}.{index}"
            session_id = ids[index]
            options = options_of(task, index, len(tasks), root, routing)
            if context_digests and task.context:
                approved = {path: context_digests.get(path, "") for path in task.context}
                options = structs.replace(options, context_digests=approved)
            requested = requested_task(task, options, session_id, run.lineage, grant, model, is_counted=is_counted)
            child = before.get(name)
            if child is None:
                child = await run.spawn(name, requested)
            else:
                await run.restart_child(f"{name}:restart", child, (messages or {}).get(child))
            return Result(label=task.label, outcome=await run.join(f"{name}:joined", child))

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one(index, task)) for index, task in enumerate(tasks)]
    return tuple(task.result() for task in running)


async def ended_before(run: RunContext) -> tuple[Result, ...]:
    """The results of the children that ended before the call that started them was interrupted."""
    joined: dict[str, str] = {}
    for record in run.history:
        name = record.key.rpartition("/")[2]
        match record.event:
            case Joined(child=child):
                joined[name] = child
            case ModelCallEnded() | MessageAdded():
                joined.clear()
            case ToolCallEnded():
                joined = {key: child for key, child in joined.items() if not key.startswith(f"{name}.")}
            case _:
                continue
    ended = [await run.join(f"ended_before.{number}", child) for number, child in enumerate(joined.values())]
    return tuple(Result(label=one.label, outcome=one) for one in ended)


def ids_key(key: str, after: int = 0) -> str:
    """Key of the id batch that starts at this index; its presence means that the fan-out was approved."""
    return f"{key}:ids.{after}"


async def _drawn(run: RunContext, key: str, count: int) -> list[str]:
    ids: list[str] = []
    while len(ids) < count:
        ids += await run.new_ids(ids_key(key, len(ids)), min(_IDS_AT_ONCE, count - len(ids)))
    return ids


def requested_task(
    task: Task,
    options: TaskOptions,
    session_id: str,
    caller: Lineage,
    grant: Grant,
    model: str,
    *,
    is_counted: bool = True,
) -> Requested:
    """The start of the subagent for a task."""
    chosen = task.model or model
    request = Request(
        session_id=session_id,
        # An agent may be named by its file; on the path is its own name, so that a cycle is found.
        target=task_hop(task.label)
        if task.agent is None
        else Hop(task.role.name if task.role else task.agent, "agent"),
        prompt=task.prompt,
        caller=caller,
        caller_grant=grant,
        wanted=task.wanted,
        is_recursive=task.role is not None and task.role.is_recursive,
        seconds=task.timeout,
        provider=chosen.partition(":")[0],
        is_counted=is_counted,
    )
    return Requested(request=request, label=task.label, model=chosen, options=options)
