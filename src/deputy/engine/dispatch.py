"""Which flow a run has, told by how it began."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from deputy.core.events import Requested, RunOpened
from deputy.engine.call import DELEGATE, run_call, run_parent
from deputy.engine.delegate import delegate
from deputy.engine.refine import REFINE, refine

if TYPE_CHECKING:
    from deputy.core.outcome import Outcome
    from deputy.engine.ports import RunContext, RunStart
    from deputy.engine.services import Services


async def run_workflow(run: RunContext, start: RunStart, services: Services) -> Outcome:
    """Carry out a run, whatever it is."""
    match start:
        case Requested():
            return await delegate(run, start, services)
        case RunOpened(command=command) if command == DELEGATE:
            return await run_call(run, start, services)
        case RunOpened(command=command) if command == REFINE:
            return await refine(run, start, services)
        case RunOpened():
            return await run_parent(run, start, services)
        case _:
            assert_never(start)
