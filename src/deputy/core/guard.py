"""The guard: `admit` returns a ticket for a request, or refuses it with a remedy."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from deputy.core.errors import Error
from deputy.core.limits import SpawnCounts, depth_allowed
from deputy.core.outcome import Rejected, shortened
from deputy.core.request import Grant, Lineage, Request, signature


class Policy(Struct, frozen=True, kw_only=True):
    """The limits of a tree of delegations."""

    max_depth: int = 3
    max_spawns: int = 64
    """The total number of spawns in a tree."""
    max_live: int = 256
    max_live_per_provider: int = 64
    repairs: int = 1
    """How often an invalid return is sent back."""
    max_subtask_depth: int = 10
    subtask_depth_ceiling: int = 32
    """The most to which a request may raise `max_subtask_depth`."""


class Ticket(Struct, frozen=True, kw_only=True):
    """Proof that a request was admitted: only `admit` makes it, and every spawn needs one."""

    request: Request
    lineage: Lineage
    grant: Grant
    spawn_counts: SpawnCounts
    """The counts including this delegation: check and count are one operation."""


class _Refusal(NamedTuple):
    type: str
    code: str
    message: str
    remedy: str


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
        return _rejected(lineage, refusal)
    return Ticket(
        request=request,
        lineage=lineage,
        grant=request.wanted.granted(request.caller_grant),
        spawn_counts=spawn_counts.entered(request.provider, is_counted=request.is_counted),
    )


def _depth(request: Request, policy: Policy) -> _Refusal | None:
    depth = request.caller.depth
    if depth < policy.max_depth or request.target.role == "subtask":
        return None
    return _Refusal(
        "depth",
        "MAX_DEPTH_EXCEEDED",
        f"{request.caller.path[-1].name!r} is at depth {depth} of at most {policy.max_depth}.",
        "Do this work yourself instead of delegating it.",
    )


def _subtask_depth(lineage: Lineage, policy: Policy) -> _Refusal | None:
    allowed = depth_allowed(lineage.subtask_limits, policy.max_subtask_depth, policy.subtask_depth_ceiling)
    if lineage.subtask_depth <= allowed:
        return None
    return _Refusal(
        "depth",
        "MAX_DEPTH_EXCEEDED",
        f"This subtask would be at depth {lineage.subtask_depth} of at most {allowed}.",
        "Do this work yourself instead of requesting a subtask.",
    )


def _cycle(request: Request, own_signature: str) -> _Refusal | None:
    name = request.target.name
    route = " → ".join((*request.caller.names, name))
    if request.target.role == "agent" and not request.is_recursive and request.caller.has_agent(name):
        return _Refusal(
            "cycle",
            "CYCLE_DETECTED",
            f"{name!r} is already on this path: {route}.",
            f"Do this work yourself, or give it to an agent that is not one of {', '.join(request.caller.names)}.",
        )
    if own_signature in request.caller.signatures:
        return _Refusal(
            "cycle",
            "CYCLE_DETECTED",
            f"The same work was already delegated on this path: {route}.",
            "Do this work yourself, or delegate a different, smaller part of it.",
        )
    return None


def _subset(request: Request) -> _Refusal | None:
    excess = request.wanted.excess(request.caller_grant)
    if not excess:
        return None
    return _Refusal(
        "grant",
        "GRANT_EXCEEDED",
        f"The caller does not have {', '.join(excess)}.",
        "Request only tools, paths and budget that you have yourself.",
    )


def _quota(request: Request, policy: Policy, spawn_counts: SpawnCounts) -> _Refusal | None:
    provider = request.provider
    if request.is_counted and spawn_counts.spawned >= policy.max_spawns:
        return _Refusal(
            "quota",
            "SPAWN_QUOTA",
            f"This tree has spawned {spawn_counts.spawned} of at most {policy.max_spawns} subagents.",
            "Continue with the results you have, or do this work yourself.",
        )
    if spawn_counts.spawns_left is not None and spawn_counts.spawns_left <= 0:
        return _Refusal(
            "budget",
            "SPAWN_BUDGET",
            "The budget for spawning subagents is spent.",
            "Continue with the results you have, or do this work yourself.",
        )
    if spawn_counts.live >= policy.max_live:
        return _Refusal(
            "quota",
            "LIVE_QUOTA",
            f"{spawn_counts.live} of at most {policy.max_live} subagents are running in this process.",
            "Wait until one of them ends, then try again.",
        )
    if spawn_counts.live_by_provider.get(provider, 0) >= policy.max_live_per_provider:
        return _Refusal(
            "quota",
            "PROVIDER_QUOTA",
            f"{policy.max_live_per_provider} subagents are running on provider {provider!r}, which is the limit.",
            "Wait until one of them ends, or use a model of another provider.",
        )
    return None


def _time(lineage: Lineage, now: float) -> _Refusal | None:
    if lineage.deadline is None or lineage.deadline > now:
        return None
    return _Refusal(
        "timeout",
        "NO_TIME_LEFT",
        "The caller's own deadline leaves no time for this work.",
        "Finish with the results you have.",
    )


def _rejected(lineage: Lineage, refusal: _Refusal) -> Rejected:
    error = Error(
        type=refusal.type,
        code=refusal.code,
        message=refusal.message,
        recoverable=True,
        recommendation=refusal.remedy,
    )
    return Rejected(lineage=lineage, summary=shortened(f"Not started: {refusal.message}"), errors=(error,))
