"""Nested Deputy: a process started by a run places its own runs below that run, within its limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from deputy.core.errors import NotAdmitted, Unquoted, UsageError
from deputy.core.guard import admit
from deputy.core.limits import SpawnCounts
from deputy.core.outcome import Rejected
from deputy.core.request import Hop, Nesting, Request, task_hop
from deputy.processes.ancestry import AncestryUnknown, below_run

if TYPE_CHECKING:
    from deputy.core.guard import Policy
    from deputy.core.request import Grant, Lineage
    from deputy.journal.sql.sql_store import SqlStore


def nesting_of(session_id: str, max_spawns: int, own: SqlStore) -> Nesting | None:
    """The place of a new run below the run that started this process, with its quota reserved; None at the top."""
    try:
        supervisor = below_run()
    except AncestryUnknown as error:
        raise NotAdmitted(f"{error} Its delegation depth is unknown, so nothing was started.") from error
    if supervisor is None:
        return None
    if not supervisor.run or not supervisor.home:
        if not supervisor.pid:
            return None
        raise NotAdmitted(
            "Deputy started this process for several runs (as an MCP server), so its delegation depth is unknown."
            " Nothing was started. Delegate from the run itself."
        )
    from deputy.journal.nested import reserve
    from deputy.stores import find_store

    found = reserve(find_store(Path(supervisor.home)), supervisor.run, session_id, max_spawns, own)
    # The environment variable may outlive its run; a supervisor process does not.
    return found if supervisor.pid or found.is_live else None


def is_below_run() -> bool:
    """Whether a run of Deputy has started this process, or that cannot be known."""
    try:
        return below_run() is not None
    except AncestryUnknown:
        return True


def refuse_below_run(action: str) -> None:
    """Refuse to approve or answer for a person in a process that a run of Deputy has started."""
    try:
        supervisor = below_run()
    except AncestryUnknown as error:
        raise UsageError(action, Unquoted("unknown parent processes"), str(error)) from error
    if supervisor is not None:
        run = supervisor.run or "a server of a run"
        raise UsageError(
            action,
            Unquoted(f"a process that {run} started"),
            "a run cannot approve, answer or extend its own call; a person does that in another terminal",
        )


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
    """The lineage of a parent agent started below a run, admitted by the guard like any subagent."""
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
