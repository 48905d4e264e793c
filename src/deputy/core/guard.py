"""The guard: `admit` returns a ticket for a request, or refuses it with a remedy."""

from __future__ import annotations

from msgspec import Struct

from deputy.core.errors import Error, new_error
from deputy.core.limits import SpawnCounts, depth_allowed
from deputy.core.outcome import Rejected, shortened
from deputy.core.request import Grant, Lineage, Request, signature


class Policy(Struct, frozen=True, kw_only=True):
    """The limits of a tree of delegations."""

    max_depth: int = 3
    """The lowest level that exists; the caller is at 0."""
    max_spawns: int = 64
    """Subagents of one tree."""
    max_live: int = 256
    """Subagents that work at once in this process."""
    max_live_per_provider: int = 64
    """Of those, how many use one provider."""
    repairs: int = 1
    """How often a return that fails its checks is sent back; at most 2."""
    max_subtask_depth: int = 10
    """The lowest level of nested subtasks."""
    subtask_depth_ceiling: int = 32
    """The most to which a request may raise `max_subtask_depth`."""


class Ticket(Struct, frozen=True, kw_only=True):
    """Proof that a request was admitted: only `admit` makes it, and every spawn needs one."""

    request: Request
    lineage: Lineage
    grant: Grant
    spawn_counts: SpawnCounts
    """The counts including this delegation: check and count are one operation."""


def admit(request: Request, policy: Policy, spawn_counts: SpawnCounts, now: float) -> Ticket | Rejected:
    """Admit a request, or refuse it before anything is started or spent."""
    lineage = request.caller.child(
        request.session_id,
        request.target,
        signature(request.target.name, request.description or request.prompt, request.inputs),
        now=now,
        seconds=request.seconds,
        subtask_limit=request.subtask_limit,
    )
    refusal = (
        _depth(request, policy)
        or _subtask_depth(lineage, policy)
        or _cycle(request, lineage.signatures[-1])
        or _subset(request)
        or _quota(request, policy, spawn_counts)
        or _time(lineage, now)
    )
    if refusal is not None:
        summary = shortened(f"Not started: {refusal.message}")
        return Rejected(lineage=lineage, summary=summary, errors=(refusal,))
    return Ticket(
        request=request,
        lineage=lineage,
        grant=request.wanted.granted(request.caller_grant),
        spawn_counts=spawn_counts.entered(request.provider, is_counted=request.is_counted),
    )


def _depth(request: Request, policy: Policy) -> Error | None:
    depth, limit = request.caller.depth, request.caller.depth_limit(policy.max_depth)
    if depth < limit or request.target.role == "subtask":
        return None
    name = request.caller.path[-1].name
    return new_error("MAX_DEPTH_EXCEEDED", f"{name!r} is at depth {depth} of at most {limit}.")


def _subtask_depth(lineage: Lineage, policy: Policy) -> Error | None:
    allowed = depth_allowed(lineage.subtask_limits, policy.max_subtask_depth, policy.subtask_depth_ceiling)
    if lineage.subtask_depth <= allowed:
        return None
    return new_error(
        "MAX_DEPTH_EXCEEDED",
        f"This subtask would be at depth {lineage.subtask_depth} of at most {allowed}.",
        "Do this work yourself instead of requesting a subtask.",
    )


def _cycle(request: Request, own_signature: str) -> Error | None:
    name = request.target.name
    route = " → ".join((*request.caller.names, name))
    if request.target.role == "agent" and not request.is_recursive and request.caller.has_agent(name):
        return new_error(
            "CYCLE_DETECTED",
            f"{name!r} is already on this path: {route}.",
            f"Do this work yourself, or give it to an agent that is not one of {', '.join(request.caller.names)}.",
        )
    if own_signature in request.caller.signatures:
        return new_error(
            "CYCLE_DETECTED",
            f"The same work was already delegated on this path: {route}.",
            "Do this work yourself, or delegate a different, smaller part of it.",
        )
    return None


def _subset(request: Request) -> Error | None:
    excess = request.wanted.excess(request.caller_grant)
    return new_error("GRANT_EXCEEDED", f"The caller does not have {', '.join(excess)}.") if excess else None


def _quota(request: Request, policy: Policy, counts: SpawnCounts) -> Error | None:
    provider = request.provider
    if request.is_counted and counts.spawned >= policy.max_spawns:
        message = f"This tree has spawned {counts.spawned} of at most {policy.max_spawns} subagents."
        return new_error("SPAWN_QUOTA", message)
    if counts.spawns_left is not None and counts.spawns_left <= 0:
        return new_error("SPAWN_BUDGET", "The budget for spawning subagents is spent.")
    if counts.live >= policy.max_live:
        message = f"{counts.live} of at most {policy.max_live} subagents are running in this process."
        return new_error("LIVE_QUOTA", message)
    if counts.live_by_provider.get(provider, 0) >= policy.max_live_per_provider:
        most = policy.max_live_per_provider
        return new_error(
            "PROVIDER_QUOTA", f"{most} subagents are running on provider {provider!r}, which is the limit."
        )
    return None


def _time(lineage: Lineage, now: float) -> Error | None:
    if lineage.deadline is None or lineage.deadline > now:
        return None
    return new_error("NO_TIME_LEFT", "The caller's own deadline leaves no time for this work.")
