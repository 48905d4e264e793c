"""Before a run that has ended works again: a person may have to approve it, and what it had stands until then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.events import Resumed, Returned
from deputy.core.state import RESUME_APPROVAL
from deputy.engine.approvals import ask_person
from deputy.engine.call import DELEGATE, not_approved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.approval import ApprovalRequest
    from deputy.core.events import Event
    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.engine.ports import RunContext
    from deputy.engine.services import Services


async def denied_outcome(run: RunContext, services: Services) -> Outcome | None:
    """The outcome that stands because nobody approved another round; None when the run may work."""
    if not run.state.round:
        return None
    resumed = next((one.event for one in reversed(run.history) if isinstance(one.event, Resumed)), None)
    if resumed is None or resumed.request is None:
        return None
    request = resumed.request

    async def make() -> ApprovalRequest:
        return request

    verdict = await ask_person(
        run,
        RESUME_APPROVAL,
        make,
        begun="started",
        tell=lambda progress: services.emit(run, progress),
        approval=services.approval,
        approval_timeout_seconds=resumed.approval_timeout_seconds,
    )
    return None if verdict.is_yes else outcome_before(run)


def outcome_before(run: RunContext) -> Outcome | None:
    """How the round before this one ended; None in the first."""
    return _last_outcome([one.event for one in run.history])


def unapproved_ending(state: State, events: Sequence[Event]) -> Outcome | None:
    """How a run ends that nobody approved before it worked; None for one that is at work, and goes on without."""
    if any(key.endswith(RESUME_APPROVAL) for key in state.waits):
        return _last_outcome(events)
    is_begun = state.command != DELEGATE or state.started_at is not None
    return None if is_begun or state.lineage is None else not_approved(state.lineage)


def _last_outcome(events: Sequence[Event]) -> Outcome | None:
    return next((event.outcome for event in reversed(events) if isinstance(event, Returned)), None)
