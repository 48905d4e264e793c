"""What the cases are made of: a host, bodies of steps that are counted, and a process that dies."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeAlias

from deputy.core.errors import Error
from deputy.core.events import Noted, Requested, RunOpened, StepEnded
from deputy.core.outcome import Blocked, Completed
from deputy.core.request import Grant, Hop, Lineage, Request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.engine.ports import Engine, RunContext, Workflow

PATIENCE_SECONDS = 20.0
RUN = "sess_1_root00"
_LOOK_SECONDS = 0.002


class Host(Protocol):
    """Where a case's engines run. What one engine wrote, the next one finds."""

    def start(self, workflow: Workflow) -> AbstractAsyncContextManager[Engine]:
        """An engine that carries runs out by this flow; leaving it is an orderly end of its process."""
        ...

    async def crash(self, engine: Engine) -> None:
        """End an engine as kill -9 would: nothing more is written, nothing is given up."""
        ...


class CallCounter:
    """Step bodies that are counted, and a gate that one of them waits at."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()

    async def note(self, args: str, view: None) -> Noted:
        """Do something."""
        self.made.append(args)
        return Noted(content=args)

    async def gated(self, args: str, view: None) -> StepEnded:
        """Wait at the gate."""
        self.made.append(args)
        self.reached.set()
        await self.gate.wait()
        return StepEnded(step=args)


class Death:
    """Step bodies that are counted, one of which ends its process by its first act."""

    def __init__(self, host: Host) -> None:
        self.made: list[str] = []
        self._host = host
        self._dying: Engine | None = None
        self._is_over = asyncio.Event()

    async def meet(self, flow: Workflow) -> None:
        """Run a flow until it has died."""
        async with self._host.start(flow) as self._dying:
            await self._dying.submit(RUN, opened())
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._is_over.wait()

    async def note(self, args: str, view: None) -> Noted:
        """Do something."""
        self.made.append(args)
        return Noted(content=args)

    async def come(self, args: str, view: None) -> StepEnded:
        """Die, once."""
        self.made.append(args)
        if not self._is_over.is_set() and self._dying is not None:
            await self._host.crash(self._dying)
            self._is_over.set()
            await asyncio.get_running_loop().create_future()
        return StepEnded(step=args)


Case: TypeAlias = "Callable[[Host], Awaitable[None]]"
"""What must hold, shown on a fresh host; fails by `AssertionError`."""


@asynccontextmanager
async def serving(engine: Engine) -> AsyncGenerator[None]:
    """Let an engine carry out what others left, for a while."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(engine.serve())
        yield
        task.cancel()


async def crash_in_the_gate_and_go_on(host: Host, flow: Workflow, calls: CallCounter) -> str:
    """Die while a step waits at the gate, and let the next engine finish."""
    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await calls.reached.wait()
        await host.crash(engine)
    calls.gate.set()
    async with host.start(flow) as engine, serving(engine):
        return await result_of(engine)


async def result_of(engine: Engine) -> str:
    """What the run came to."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        return (await engine.result(RUN)).summary


async def until(engine: Engine, holds: Callable[[str], bool]) -> None:
    """Wait until the status of the run is as wanted."""
    await until_state(engine, lambda state: holds(state.status))


async def until_state(engine: Engine, holds: Callable[[State], bool]) -> None:
    """Wait until the run stands as wanted."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            state = await engine.get(RUN)
            if state is not None and holds(state):
                return
            await asyncio.sleep(_LOOK_SECONDS)


def opened() -> RunOpened:
    """The birth of a run."""
    return RunOpened(lineage=Lineage.root(RUN), label="root")


def requested(run: RunContext, child: str, label: str) -> Requested:
    """The birth of a child."""
    caller = run.state.lineage or Lineage.root(run.run)
    request = Request(
        session_id=child, target=Hop(f"task:{label}", "task"), prompt=label, caller=caller, caller_grant=Grant()
    )
    return Requested(request=request, label=label)


def completed(run: RunContext, summary: str) -> Outcome:
    """A good end."""
    return Completed(lineage=run.state.lineage or Lineage.root(run.run), summary=summary)


def blocked(run: RunContext, question: str) -> Outcome:
    """An end with a question."""
    error = Error(type="execution", message=question, recoverable=True, recommendation="Answer it.")
    lineage = run.state.lineage or Lineage.root(run.run)
    return Blocked(lineage=lineage, summary="It asks.", question=question, errors=(error,))
