"""The registry: all delegations and their status, read from the journal."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET, json, structs, to_builtins

from deputy.core.approval import ApprovalRequest, read_decision
from deputy.core.events import APPROVAL, Admitted, ModelCallBegun, QuestionAnswered, QuestionAsked, Requested, RunOpened
from deputy.core.outcome import NO_USAGE
from deputy.core.request import timestamp
from deputy.core.serialize import outcome_dict
from deputy.core.state import ASKED, prefix
from deputy.engine.ports.queries import DamagedRecord
from deputy.engine.recover import GRACE_SECONDS, RunStatus, overdue, seconds_late, shown_status, unanswered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from deputy.core.outcome import Outcome, Usage
    from deputy.core.state import State
    from deputy.engine.ports.queries import LeaseHolder, Queries


def statuses(queries: Queries, states: Sequence[State]) -> list[RunStatus]:
    """The status of these runs, with whether a process holds them."""
    holders = queries.holders([state.run for state in states])

    def status(state: State) -> RunStatus:
        holder = holders.get(state.run)
        is_orphaned = holder is None or holder.is_orphaned
        # A run that ended since it was read has no holder, and is no orphan.
        now = queries.state(state.run) or state if state.is_live and is_orphaned else state
        return RunStatus(state=now, is_orphaned=is_orphaned, holder=holder)

    return [status(state) for state in states]


def list_runs(queries: Queries, *, ended: int = 0, newest: int | None = None) -> list[RunStatus]:
    """The live and the blocked delegations, and the latest `ended` ones; in tree order.

    Of the live ones only the `newest`, the newest that wait for a person, and their callers.
    """
    live: Iterable[State] = queries.live()
    if newest is not None and len(live) > newest:
        waiting = [state for state in live[:-newest] if state.waits]
        live = _with_callers(queries, (*waiting[-newest:], *live[-newest:]))
    states = {state.run: state for state in (*live, *_with_callers(queries, queries.blocked()))}
    if ended:
        states |= {state.run: state for state in queries.ended(ended)}
    return as_tree(with_usage(queries, statuses(queries, list(states.values()))))


def with_usage(queries: Queries, found: Sequence[RunStatus]) -> list[RunStatus]:
    """These runs with the usage of their subtrees."""
    shown = {one.state.run for one in found}
    roots = {one.state.lineage.root_id for one in found if one.state.counts.children and one.state.lineage is not None}
    used: dict[str, Usage] = {}
    for root in roots:
        tree = {state.run: state for state in queries.tree(root)}
        for state in tree.values():
            above = state.run if state.usage != NO_USAGE else None
            while above is not None:
                if above in shown:
                    used[above] = used.get(above, NO_USAGE) + state.usage
                above = tree[above].parent if above in tree else None
    return [structs.replace(one, used=used.get(one.state.run)) for one in found]


def _with_callers(queries: Queries, states: Iterable[State]) -> Iterable[State]:
    """These runs and their ancestors."""
    known: dict[str, State] = {}
    for state in states:
        above: State | None = state
        while above is not None and above.run not in known:
            known[above.run] = above
            above = None if above.parent is None else queries.state(above.parent)
    return known.values()


class ExpiredRuns(NamedTuple):
    """Live runs whose time is up."""

    late: list[State]
    """Runs past their deadline, children first."""
    unanswered: list[State]
    """Runs whose approval was not answered in time."""
    next_seconds: float
    """When to look again, unless a run changes."""


def out_of_time(queries: Queries, now: float) -> ExpiredRuns:
    """The live runs past their deadline, and those whose approval was not answered in time."""
    live = queries.live()
    # A run may be late and not yet overdue: it has some seconds to end by itself.
    soon = min((at for state in live for at in due_times(state)), default=inf)
    if soon > now:
        return ExpiredRuns([], [], max(soon - now, GRACE_SECONDS))
    found = statuses(queries, live)
    return ExpiredRuns(overdue(found, now), unanswered(found, now), max(soon - now, GRACE_SECONDS))


def due_times(state: State) -> Iterator[float]:
    """When a live run is out of time, and when an approval of it is refused, by the journal's clock."""
    if state.lineage is not None and state.lineage.deadline is not None and state.status != "waiting":
        yield state.lineage.deadline
    if state.answer_by is not None:
        yield state.answer_by


def orphaned(queries: Queries) -> list[str]:
    """The runs whose process died during a step that must not be repeated: its command may still run."""
    live = queries.live()
    at_work = [state.run for state in live if any(not step.is_repeatable for step in state.under_way.values())]
    holders: dict[str, LeaseHolder] = queries.holders(at_work) if at_work else {}
    return [run for run in at_work if run in holders and holders[run].is_gone]


def as_tree(statuses: Iterable[RunStatus]) -> list[RunStatus]:
    """In tree order: every run after its caller, siblings by time."""
    ordered = sorted(statuses, key=lambda status: (status.state.requested_at, status.state.run))
    present = {status.state.run for status in ordered}
    below: dict[str | None, list[RunStatus]] = {}
    for status in ordered:
        parent = status.state.parent
        below.setdefault(parent if parent in present else None, []).append(status)
    tree: list[RunStatus] = []
    waiting = below.pop(None, [])[::-1]
    while waiting:
        status = waiting.pop()
        tree.append(status)
        waiting.extend(below.pop(status.state.run, [])[::-1])
    return tree


def entry_dict(status: RunStatus, now: float) -> dict[str, Any]:
    """A registry entry as JSON data."""
    state = status.state
    lineage = state.lineage
    return {
        "session_id": state.run,
        "parent": state.parent,
        "label": state.label,
        "status": shown_status(status),
        "worker": None if status.holder is None else status.holder.host or None,
        "queue": None if status.holder is None else status.holder.queue or None,
        "command": state.command or None,
        "subagent": state.agent,
        "task_number": state.task_number,
        "started_at": timestamp(state.began_at),
        "resumed_at": None if state.resumed_at is None else timestamp(state.resumed_at),
        "ended_at": None if state.ended_at is None else timestamp(state.ended_at),
        "timeout": state.seconds,
        "deadline": None if lineage is None else lineage.deadline_shown,
        "overdue": state.is_live and seconds_late(state, now) > 0,
        "delegation_depth": 0 if lineage is None else lineage.depth,
        "delegation_path": [] if lineage is None else lineage.names,
        "model": state.model or None,
        "backend": state.backend or None,
        "round": state.round,
        "turns": state.counts.turns,
        "tool_calls": state.counts.tool_calls,
        "notes": state.counts.notes,
        "under_way": [step.name for step in state.under_way.values()],
        "question": state.question or None,
        "delivered": state.is_delivered,
        "usage": to_builtins(status.usage),
        "own_usage": to_builtins(state.usage),
    }


def show_run(queries: Queries, run: str) -> dict[str, Any] | None:
    """A delegation's entry, with its outcome once it has ended; None when there is no such run."""
    state = queries.state(run)
    if state is None:
        return None
    (status,) = with_usage(queries, statuses(queries, [state]))
    ended = queries.outcome(state)
    return {
        **entry_dict(status, queries.now()),
        **asked_of(queries, state),
        "approves": APPROVAL in state.waits.values(),
        "children": [_child_dict(one) for one in as_tree(_children(queries, state))],
        "always_approved": always_approved(queries, state) or None,
        "outcome": None if ended is None else outcome_dict(ended),
    }


def asked_of(queries: Queries, state: State) -> dict[str, Any]:
    """What the run was asked to do, and the tools that it has; before it has started, those that it was granted."""
    prompt, tools = "", tuple[str, ...]()
    for record in queries.records(state.run):
        match getattr(record, "event", None):
            case RunOpened() as start:
                prompt, tools = start.prompt, tuple(start.grant.tools)
                if not prompt and start.arguments is not UNSET:
                    tasks = json.decode(start.arguments, type=dict[str, Any]).get("tasks", ())
                    prompt = "\n".join(f"[{task['label']}] {task['prompt']}" for task in tasks)
            case Requested() as start:
                prompt, tools = start.request.prompt, tuple(start.request.caller_grant.tools)
            case Admitted(grant=grant):
                tools = tuple(grant.tools)
            case ModelCallBegun(tools=held):
                tools = held or tools
                break
            case _:
                continue
    return {"prompt": prompt, "tools": sorted(tools)}


def _children(queries: Queries, state: State) -> list[RunStatus]:
    below = [one for one in queries.descendants(state.run) if one.parent == state.run]
    return with_usage(queries, statuses(queries, below))


def _child_dict(status: RunStatus) -> dict[str, Any]:
    state = status.state
    return {
        "session_id": state.run,
        "label": state.label or state.agent,
        "status": shown_status(status),
        "usage": to_builtins(status.usage),
    }


def always_approved(queries: Queries, state: State) -> list[str]:
    """The tools that a person has approved for the rest of this round."""
    asked: dict[str, tuple[str, str]] = {}
    tools: list[str] = []
    for record in queries.records(state.run):
        if isinstance(record, DamagedRecord) or not record.key.startswith(prefix(state.round)):
            continue
        match record.event:
            case QuestionAsked(request=ApprovalRequest(tool=tool), digest=digest):
                asked[record.key.removesuffix(ASKED)] = (tool, digest)
            case QuestionAnswered(body=body) if record.key in asked:
                tool, digest = asked[record.key]
                if read_decision(body, digest) == "always":
                    tools.append(tool)
            case _:
                continue
    return tools


def outcomes(queries: Queries, runs: Iterable[str]) -> dict[str, Outcome]:
    """The outcomes of those of these runs that have ended."""
    states = ((run, queries.state(run)) for run in runs)
    found = ((run, None if state is None else queries.outcome(state)) for run, state in states)
    return {run: ended for run, ended in found if ended is not None}
