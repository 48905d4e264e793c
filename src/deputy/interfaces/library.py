"""Deputy as a library: delegate, watch, resume and cancel from a program of your own."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec import UNSET, Raw, UnsetType, json

from deputy.core.errors import UsageError
from deputy.core.events import Joined, Opened
from deputy.core.guard import Policy
from deputy.core.limits import Budget
from deputy.core.outcome import Cancelled
from deputy.core.request import READ_ONLY_TOOLS, Grant, Lineage
from deputy.core.task import DEFAULT_CONCURRENCY, Task
from deputy.engine.root import DELEGATE, RUN, FanOut
from deputy.wiring import Runtime, open_runtime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from deputy.core.outcome import Outcome
    from deputy.core.progress import Progress
    from deputy.engine.ports import Tool

ALL_TOOLS = READ_ONLY_TOOLS | {"Edit", "Write", "Run", "Delegate"}
MANY = 100_000


class Deputy:
    """A place from which work is handed to subagents; `async with` bounds its life."""

    def __init__(
        self,
        model: str,
        *,
        workspace: str | Path = ".",
        home: Path | None = None,
        budget: Budget | None = None,
        policy: Policy | None = None,
        tools: Sequence[Tool] = (),
    ) -> None:
        self._model = model
        self._workspace = Path(workspace).absolute()
        self._home = home
        self._grant = Grant(tools=ALL_TOOLS | {tool.name for tool in tools}, budget=budget or Budget())
        # The tool's bounds are for what a model asks for; a program may ask for thousands.
        self._policy = policy or Policy(max_spawns=MANY, max_live=MANY, max_live_per_provider=MANY)
        self._tools = tools
        self._stack = AsyncExitStack()
        self._runtime: Runtime | None = None
        self._watchers: list[asyncio.Queue[Progress]] = []

    async def __aenter__(self) -> Self:
        self._runtime = await self._stack.enter_async_context(
            open_runtime(
                workspace=self._workspace,
                watch=self._tell,
                folder=self._home,
                policy=self._policy,
                tools=self._tools,
            )
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def delegate(self, tasks: Sequence[Task], *, concurrency: int = DEFAULT_CONCURRENCY) -> tuple[Outcome, ...]:
        """Hand each task to a subagent; outcomes stand in the order of the tasks, whatever finishes first."""
        if not tasks:
            raise UsageError("tasks", tasks, "give at least one task")
        arguments = FanOut(tasks=tuple(tasks), concurrency=concurrency)
        run = await self._open(command=DELEGATE, arguments=Raw(json.encode(arguments)))
        whole = await self._of.engine.result(run)
        joined = await self._joined(run)
        return tuple([await self._outcome(joined.get(f"task.{index}"), whole) for index in range(len(tasks))])

    async def run(self, prompt: str) -> Outcome:
        """Let a parent agent work on a prompt with every tool, Delegate among them."""
        return await self._of.engine.result(await self._open(command=RUN, prompt=prompt))

    async def resume(self, session_id: str, answer: str | None = None) -> Outcome:
        """Go on with a delegation that has ended, with a further message or the answer to its question."""
        await self._of.engine.resume(session_id, answer)
        return await self._of.engine.result(session_id)

    async def cancel(self, session_id: str) -> None:
        """Stop a delegation and everything below it."""
        await self._of.engine.cancel(session_id)

    async def events(self) -> AsyncIterator[Progress]:
        """What subagents do, as it happens, until this Deputy is closed or the loop is left."""
        queue: asyncio.Queue[Progress] = asyncio.Queue(10_000)
        self._watchers.append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._watchers.remove(queue)

    @property
    def _of(self) -> Runtime:
        if self._runtime is None:
            raise UsageError("Deputy", "not open", "use it with `async with Deputy(...) as deputy:`")
        return self._runtime

    async def _open(self, *, command: str, prompt: str = "", arguments: Raw | UnsetType = UNSET) -> str:
        run = await self._of.engine.draw_id()
        birth = Opened(
            lineage=Lineage.root(run),
            model=self._model,
            grant=self._grant,
            command=command,
            prompt=prompt,
            arguments=arguments,
        )
        await self._of.engine.submit(run, birth)
        return run

    async def _joined(self, run: str) -> dict[str, Joined]:
        """The children whose outcomes a run has taken, by the key it spawned them under."""
        records = await self._of.journal.records(run)
        return {r.key.removesuffix(":joined"): r.event for r in records if isinstance(r.event, Joined)}

    async def _outcome(self, joined: Joined | None, whole: Outcome) -> Outcome:
        if joined is None:
            return Cancelled(lineage=whole.lineage, summary="It was not started: the whole call ended first.")
        return await self._of.engine.outcome(joined.child, joined.round)

    def _tell(self, progress: Progress) -> None:
        for queue in self._watchers:
            if not queue.full():
                queue.put_nowait(progress)
