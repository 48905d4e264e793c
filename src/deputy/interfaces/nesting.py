"""A Deputy in a process that a run has started: it stands below that run, within what that run has left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from deputy.core.errors import NotAdmitted
from deputy.core.guard import admit
from deputy.core.limits import SpawnCounts
from deputy.core.outcome import Rejected
from deputy.core.request import Hop, Nesting, Request, task_hop
from deputy.processes.ancestry import below_run

if TYPE_CHECKING:
    from deputy.core.guard import Policy
    from deputy.core.request import Grant, Lineage


def nesting_of(session_id: str, max_spawns: int) -> Nesting | None:
    """Where a new run of this process stands, with its caps reserved; None when no run has started this process."""
    supervisor = below_run()
    if supervisor is None:
        return None
    if not supervisor.run or not supervisor.home:
        if not supervisor.pid:
            return None
        raise NotAdmitted(
            "A Deputy started this process for no single run (as an MCP server), so nobody can say how deep it is."
            " Nothing was started. Delegate from the run itself."
        )
    from deputy.journal.nested import reserve

    found = reserve(Path(supervisor.home), supervisor.run, session_id, max_spawns)
    # A variable may be left over from a run that is over; a supervisor lives no longer than what it was started for.
    return found if supervisor.pid or found.is_live else None


def admitted(
    session_id: str,
    nesting: Nesting,
    prompt: str,
    policy: Policy,
    *,
    agent: str | None,
    grant: Grant,
    seconds: float | None,
    now: float,
) -> Lineage:
    """Where a parent agent stands that is started below a run: the guard lets it in like any other subagent."""
    request = Request(
        session_id=session_id,
        target=task_hop("run") if agent is None else Hop(agent, "agent"),
        prompt=prompt,
        caller=nesting.lineage,
        caller_grant=grant,
        seconds=seconds,
    )
    decision = admit(request, policy, SpawnCounts(spawns_left=nesting.budget.spawns), now)
    if isinstance(decision, Rejected):
        error = decision.errors[0]
        raise NotAdmitted(f"{error.code}: {error.message} {error.recommendation}")
    return structs.replace(decision.lineage, root_id=session_id, top_depth=decision.lineage.depth)
