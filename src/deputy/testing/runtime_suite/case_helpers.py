"""Helpers of the cases: the host, counted step bodies, and a process that dies."""

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

MAX_WAIT_SECONDS = 20.0
RUN = "sess_1_root00"
_LOOK_SECONDS = 0.002


class Host(Protocol):
    """Starts the engines of a case on one storage."""

    def start(self, workflow: Workflow) -> AbstractAsyncContextManager[Engine]:
        """An engine with this workflow; leaving the block ends its process in order."""
        ...

    async def crash(self, engine: Engine) -> None:
        """End an engine like kill -9: nothing more is written, no lease is given up."""
        ...


class CallCounter:
    """Counted step bodies, and a gate for one of them."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()

    async def note(self, args: str) -> Noted:
        """Record the call."""
        self.made.append(args)
        return Noted(content=args)

    async def gated(self, args: str) -> StepEnded:
        """Record the call and wait at the gate."""
        self.made.append(args)
        self.reached.set()
        await self.gate.wait()
        return StepEnded(step=args)


class Death:
    """Counted step bodies, one of which kills its process."""

    def __init__(self, host: Host) -> None:
        self.made: list[str] = []
        self._host = host
        self._dying: Engine | None = None
        self._is_over = asyncio.Event()

    async def meet(self, flow: Workflow) -> None:
        """Run a workflow until its process has died."""
        async with self._host.start(flow) as self._dying:
            await self._dying.submit(RUN, opened())
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                await self._is_over.wait()

    async def note(self, args: str) -> Noted:
        """Record the call."""
        self.made.append(args)
        return Noted(content=args)

    async def come(self, args: str) -> StepEnded:
        """Kill the process, once."""
        self.made.append(args)
        if not self._is_over.is_set() and self._dying is not None:
            await self._host.crash(self._dying)
            self._is_over.set()
            await asyncio.get_running_loop().create_future()
        return StepEnded(step=args)


Case: TypeAlias = "Callable[[Host], Awaitable[None]]"
"""A check on a fresh host; fails with `AssertionError`."""


@asynccontextmanager
async def serving(engine: Engine) -> AsyncGenerator[None]:
    """Let an engine adopt orphaned runs during the block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(engine.serve())
        yield
        task.cancel()


async def crash_in_the_gate_and_go_on(host: Host, flow: Workflow, calls: CallCounter) -> str:
    """Crash while a step waits at the gate, and let the next engine finish."""
    async with host.start(flow) as engine:
        await engine.submit(RUN, opened())
        await calls.reached.wait()
        await host.crash(engine)
    calls.gate.set()
    async with host.start(flow) as engine, serving(engine):
        return await result_of(engine)


async def result_of(engine: Engine) -> str:
    """The summary of the run's outcome."""
    async with asyncio.timeout(MAX_WAIT_SECONDS):
        return (await engine.result(RUN)).summary


async def until(engine: Engine, holds: Callable[[str], bool]) -> None:
    """Wait until the status of the run holds."""
    await until_state(engine, lambda state: holds(state.status))


async def until_state(engine: Engine, holds: Callable[[State], bool]) -> None:
    """Wait until the state of the run holds."""
    async with asyncio.timeout(MAX_WAIT_SECONDS):
        while True:
            state = await engine.get(RUN)
            if state is not None and holds(state):
                return
            await asyncio.sleep(_LOOK_SECONDS)


def opened() -> RunOpened:
    """The first event of a run."""
    return RunOpened(lineage=Lineage.root(RUN), label="root")


def requested(run: RunContext, child: str, label: str) -> Requested:
    """The first event of a child."""
    caller = run.state.lineage or Lineage.root(run.run)
    request = Request(
        session_id=child, target=Hop(f"task:{label}", "task"), prompt=label, caller=caller, caller_grant=Grant()
    )
    return Requested(request=request, label=label)


def completed(run: RunContext, summary: str) -> Outcome:
    """A completed outcome."""
    return Completed(lineage=run.state.lineage or Lineage.root(run.run), summary=summary)


def blocked(run: RunContext, question: str) -> Outcome:
    """A blocked outcome."""
    error = Error(type="execution", message=question, recoverable=True, recommendation="Answer it.")
    lineage = run.state.lineage or Lineage.root(run.run)
    return Blocked(lineage=lineage, summary="It asks.", question=question, errors=(error,))
