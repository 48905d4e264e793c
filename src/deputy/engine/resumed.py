"""Before a run that has ended works again: a person may have to approve it, and what it had stands until then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import json

from deputy.core.events import Resumed, Returned
from deputy.core.progress import Progress
from deputy.core.rounds import APPROVAL

if TYPE_CHECKING:
    from deputy.core.outcome import Outcome
    from deputy.engine.ports import RunContext
    from deputy.engine.workshop import Workshop


async def denied(run: RunContext, workshop: Workshop) -> Outcome | None:
    """The outcome that stands because nobody approved another round; None when the run may work."""
    if not run.state.round:
        return None
    resumed = next((one.event for one in reversed(run.past) if isinstance(one.event, Resumed)), None)
    if resumed is None or not resumed.question:
        return None
    if not run.was_reached(APPROVAL):
        waiting = Progress(event="waiting", label=run.state.label, session_id=run.run, content=resumed.question)
        run.emit(waiting)
        workshop.watch(waiting)
    is_approved = json.decode(await run.recv(APPROVAL, "approval", resumed.question, patience=resumed.patience)) is True
    return None if is_approved else outcome_before(run)


def outcome_before(run: RunContext) -> Outcome | None:
    """How the round before this one ended; None in the first."""
    return next((one.event.outcome for one in reversed(run.past) if isinstance(one.event, Returned)), None)
