"""Which flow a run has, told by how it began."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from deputy.core.events import Opened, Requested
from deputy.engine.delegate import delegate
from deputy.engine.refine import REFINE, refine
from deputy.engine.root import DELEGATE, delegate_all, parent

if TYPE_CHECKING:
    from deputy.core.outcome import Outcome
    from deputy.engine.ports import Birth, RunContext
    from deputy.engine.workshop import Workshop


async def carry_out(run: RunContext, birth: Birth, workshop: Workshop) -> Outcome:
    """Carry out a run, whatever it is."""
    match birth:
        case Requested():
            return await delegate(run, birth, workshop)
        case Opened(command=command) if command == DELEGATE:
            return await delegate_all(run, birth, workshop)
        case Opened(command=command) if command == REFINE:
            return await refine(run, birth, workshop)
        case Opened():
            return await parent(run, birth, workshop)
        case _:
            assert_never(birth)
