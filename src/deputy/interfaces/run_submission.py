"""Submit the runs of a program: model, grant and lineage, below the run that started this process, if there is one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import UNSET, structs

from deputy.core.events import RunOpened
from deputy.core.limits import Budget
from deputy.core.request import READ_ONLY_TOOLS, Grant, Lineage
from deputy.core.task import as_parent, options_of
from deputy.core.trace_context import run_traceparent
from deputy.engine.call import DELEGATE, RUN
from deputy.engine.fanout import requested_task
from deputy.interfaces.nesting import admitted, nesting_of
from deputy.processes.current_trace import current_traceparent

if TYPE_CHECKING:
    from msgspec import Raw, UnsetType

    from deputy.core.request import Nesting
    from deputy.core.task import Role, Task
    from deputy.engine.ports import RunStart
    from deputy.interfaces.model_selection import ModelSelection
    from deputy.interfaces.placed_calls import PlacedCalls
    from deputy.options import DeputyOptions
    from deputy.wiring import Runtime


class RunSubmitter:
    """Submits runs to the engine of an open Deputy."""

    def __init__(self, runtime: Runtime, options: DeputyOptions, models: ModelSelection, placed: PlacedCalls) -> None:
        self._runtime = runtime
        self._placed = placed
        self._options = options
        self._models = models

    async def nesting(self, session_id: str) -> Nesting | None:
        """The nesting of a session below the run that started this process, with its limits reserved."""
        runtime = self._runtime
        return await asyncio.to_thread(nesting_of, session_id, runtime.services.policy.max_spawns, runtime.store)

    async def submit(
        self,
        grant: Grant,
        *,
        command: str,
        model: str | None = None,
        prompt: str = "",
        arguments: Raw | UnsetType = UNSET,
        role: Role | None = None,
        seconds: float | None = None,
        session_id: str = "",
    ) -> str:
        """Check and submit a run, as `session_id` if one is given; return its session id."""
        runtime = self._runtime
        model = model or await self._models.for_role(role)
        if command != DELEGATE:
            self._models.check_cost(grant.budget, model, "budget.cost")
        if self._models.missing_key(model) is None:
            runtime.models.open(model)
        session_id = session_id or await runtime.engine.new_id()
        nesting = await self.nesting(session_id)
        if nesting is not None:
            grant = structs.replace(grant, budget=grant.budget.narrowed(nesting.budget))
        granted = grant if role is None else as_parent(role, grant)
        agent, now, policy = None if role is None else role.name, runtime.services.world.now(), runtime.services.policy
        if nesting is not None and command == RUN:
            lineage = admitted(
                session_id, nesting, prompt, policy, agent=agent, grant=granted, seconds=seconds, now=now
            )
        else:
            deadline = None if seconds is None else now + seconds
            above = None if nesting is None else nesting.lineage
            lineage = Lineage.root(session_id, agent=agent, deadline=deadline, above=above)
        start = RunOpened(
            lineage=_traced(lineage.limited(policy.max_depth, policy.max_spawns), nesting),
            model=model,
            grant=granted,
            seconds=seconds,
            role=role,
            routing=structs.replace(self._options.routing, session_model=model),
            command=command,
            workspace=str(self._options.root),
            prompt=prompt,
            arguments=arguments,
        )
        return await self._submitted(session_id, start)

    async def submit_task(self, task: Task, model: str, *, command: str) -> str:
        """Submit one resolved task as a run of its own, whose subagent only reads; return its session id."""
        runtime, options = self._runtime, self._options
        session_id = await runtime.engine.new_id()
        nesting = await self.nesting(session_id)
        budget = options.budget or Budget()
        grant = Grant(tools=READ_ONLY_TOOLS, budget=budget if nesting is None else budget.narrowed(nesting.budget))
        above = None if nesting is None else nesting.lineage
        caller = Lineage.root(session_id, command=command, above=above)
        wanted = READ_ONLY_TOOLS if task.tools is None else frozenset(task.tools)
        policy, routing = runtime.services.policy, structs.replace(options.routing, session_model=model)
        start = requested_task(
            structs.replace(task, tools=tuple(sorted(READ_ONLY_TOOLS & wanted))),
            options_of(task, 0, 1, routing=routing),
            session_id,
            _traced(caller.limited(policy.max_depth, policy.max_spawns), nesting),
            grant,
            model,
        )
        start = structs.replace(start, command=command, workspace=str(options.root))
        return await self._submitted(session_id, start)

    async def _submitted(self, session_id: str, start: RunStart) -> str:
        runtime = self._runtime
        start = structs.replace(start, conditions=await runtime.conditions_for(session_id, start))
        await runtime.engine.submit(session_id, start)
        if runtime.queue_for(start):
            self._placed.follow(session_id)
        return session_id


def _traced(lineage: Lineage, nesting: Nesting | None) -> Lineage:
    """The lineage of a new top in the trace of its caller, or of the run that started this process."""
    caller = current_traceparent()
    if caller is None and nesting is not None:
        caller = run_traceparent(nesting.lineage, nesting.round)
    return structs.replace(lineage, traceparent=UNSET if caller is None else str(caller))
