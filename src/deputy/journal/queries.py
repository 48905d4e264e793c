"""The registry: all delegations and their status, read from the journal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from deputy.core.approval import ApprovalRequest, read_decision
from deputy.core.events import AdmissionRefused, QuestionAnswered, QuestionAsked, Returned
from deputy.core.outcome import NO_USAGE
from deputy.core.request import timestamp
from deputy.core.serialize import outcome_dict, usage_dict
from deputy.core.state import ASKED, prefix
from deputy.engine.recover import RunStatus, overdue, seconds_late, shown_status, unanswered
from deputy.journal.sqlite.reader import STALE_SECONDS
from deputy.journal.sqlite.rows import DamagedRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deputy.core.outcome import Outcome, Usage
    from deputy.core.state import State
    from deputy.journal.sqlite.reader import JournalReader


def statuses(reader: JournalReader, states: Sequence[State], stale_seconds: float = STALE_SECONDS) -> list[RunStatus]:
    """The status of these runs, with whether a process holds them."""
    holders = reader.holders(state.run for state in states if state.is_live)
    now = time.monotonic()
    # Each process is looked up once, however many runs it has.
    left: dict[tuple[str, float | None], bool] = {}

    def is_orphaned(run: str) -> bool:
        holder = holders.get(run)
        if holder is None:
            return True
        name = (holder.owner, holder.beat)
        if name not in left:
            left[name] = holder.is_orphaned(now, stale_seconds)
        return left[name]

    def as_it_is(state: State) -> State:
        # A run that ended since it was read has no holder, and is no orphan.
        return reader.state(state.run) or state if state.is_live and is_orphaned(state.run) else state

    return [RunStatus(state=as_it_is(state), is_orphaned=is_orphaned(state.run)) for state in states]


def list_runs(reader: JournalReader, *, ended: int = 0) -> list[RunStatus]:
    """The live and the blocked delegations, and the latest `ended` ones; in tree order."""
    states = {state.run: state for state in (*reader.live(), *_with_callers(reader, reader.blocked()))}
    if ended:
        states |= {state.run: state for state in reader.ended(ended)}
    return as_tree(with_usage(reader, statuses(reader, list(states.values()))))


def with_usage(reader: JournalReader, found: Sequence[RunStatus]) -> list[RunStatus]:
    """These runs with the usage of their subtrees."""
    roots = {one.state.lineage.root_id for one in found if one.state.counts.children and one.state.lineage is not None}
    used: dict[str, Usage] = {}
    for root in roots:
        tree = {state.run: state for state in reader.tree(root)}
        for state in tree.values():
            above: str | None = state.run
            while above is not None:
                used[above] = used.get(above, NO_USAGE) + state.usage
                above = tree[above].parent if above in tree else None
    return [structs.replace(one, used=used.get(one.state.run)) for one in found]


def _with_callers(reader: JournalReader, states: Iterable[State]) -> Iterable[State]:
    """These runs and their ancestors."""
    known: dict[str, State] = {}
    for state in states:
        above: State | None = state
        while above is not None and above.run not in known:
            known[above.run] = above
            above = None if above.parent is None else reader.state(above.parent)
    return known.values()


class ExpiredRuns(NamedTuple):
    """Live runs whose time is up."""

    late: list[State]
    """Runs past their deadline, children first."""
    unanswered: list[State]
    """Runs whose approval was not answered in time."""


def out_of_time(reader: JournalReader, now: float) -> ExpiredRuns:
    """The live runs past their deadline, and those whose approval was not answered in time."""
    found = statuses(reader, reader.live())
    return ExpiredRuns(overdue(found, now), unanswered(found, now))


def orphaned(reader: JournalReader) -> list[str]:
    """The runs whose process died during a step that must not be repeated: its command may still run."""
    at_work = [state.run for state in reader.live() if any(not step.is_repeatable for step in state.under_way.values())]
    return [run for run, holder in reader.holders(at_work).items() if holder.is_gone]


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
        "usage": usage_dict(status.usage),
        "own_usage": usage_dict(state.usage),
    }


def show_run(reader: JournalReader, run: str) -> dict[str, Any] | None:
    """A delegation's entry, with its outcome once it has ended; None when there is no such run."""
    state = reader.state(run)
    if state is None:
        return None
    (status,) = with_usage(reader, statuses(reader, [state]))
    ended = outcome(reader, state)
    return {
        **entry_dict(status, reader.now()),
        "always_approved": always_approved(reader, state) or None,
        "outcome": None if ended is None else outcome_dict(ended),
    }


def always_approved(reader: JournalReader, state: State) -> list[str]:
    """The tools that a person has approved for the rest of this round."""
    asked: dict[str, tuple[str, str]] = {}
    tools: list[str] = []
    for record in reader.records(state.run):
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


def outcomes(reader: JournalReader, runs: Iterable[str]) -> dict[str, Outcome]:
    """The outcomes of those of these runs that have ended."""
    states = ((run, reader.state(run)) for run in runs)
    found = ((run, None if state is None else outcome(reader, state)) for run, state in states)
    return {run: ended for run, ended in found if ended is not None}


def outcome(reader: JournalReader, state: State) -> Outcome | None:
    """The outcome of a run's last round; None when it is live, or the record is damaged."""
    record = None if state.is_live else reader.must_get(state.run, f"returned:{state.round}")
    if record is None or isinstance(record, DamagedRecord) or not isinstance(record.event, Returned | AdmissionRefused):
        return None
    return record.event.outcome
