"""One run for the page: what was asked, how it stands, why it stopped, what it used, turn by turn."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, json, to_builtins

from deputy.core import events
from deputy.core.errors import UnknownRun, Unquoted, UsageError
from deputy.core.events import Record
from deputy.core.progress import Progress, shown_head
from deputy.core.request import ALWAYS_GRANTED
from deputy.core.serialize import outcome_dict
from deputy.engine.worktree import WORKTREE_OPENED, WorktreeOpened
from deputy.interfaces.report.timeline import is_open, lane_of
from deputy.interfaces.stored_branches import find_work, snapshot_of
from deputy.interfaces.web.record_lines import record_head, record_rows
from deputy.journal.registry import asked_of, entry_dict, statuses, with_usage
from deputy.processes.outgoing import process_redactor
from deputy.tools.git_diff import DiffPlace, changed_files, find_place, patch_of

if TYPE_CHECKING:
    from deputy.core.redaction import Redactor
    from deputy.core.state import State
    from deputy.engine.ports.queries import Queries
    from deputy.engine.ports.tool import Worktree
    from deputy.engine.recover import RunStatus

MOST_RECORDS = 500
"""Records that one request returns at most."""
_LAST = 4000
"""Records at the end of a run in which its turns and notes are looked for."""
_FIRST = 40
"""Records at the start of a run, among which its worktree is."""
_TEXT_LENGTH = 200_000


def found_run(queries: Queries, run: str) -> State:
    """The state of a run; UnknownRun if there is none."""
    state = queries.state(run)
    if state is None:
        raise UnknownRun(run)
    return state


def run_details(queries: Queries, run: str) -> dict[str, Any]:
    """Everything about a run but its records."""
    state = found_run(queries, run)
    (status,) = with_usage(queries, statuses(queries, [state]))
    outcome = queries.outcome(state)
    last = [one for one in queries.records(run, after=max(0, state.seq - _LAST)) if isinstance(one, Record)]
    root = state if state.parent is None or state.lineage is None else queries.state(state.lineage.root_id)
    return {
        **entry_dict(status, queries.now()),
        **asked_of(queries, state),
        "seq": state.seq,
        "workspace": state.workspace or (root.workspace if root is not None else ""),
        "outcome": None if outcome is None else outcome_dict(outcome),
        "context_tokens": state.context_tokens,
        "context_window": state.context_window,
        "budgets": _budgets(last),
        "turns_used": _turns(last),
        "is_cut": state.seq > _LAST,
        "last_records": [record_head(one) for one in last[-4:]],
        "live_text": _live_text(queries, run) if state.is_live else "",
        "damage": queries.damage,
        "has_worktree": _worktree(queries, run) is not None,
        "can_again": can_again(queries, state),
        "children": [
            {"session_id": one.run, "label": one.label or one.agent, "status": one.status}
            for one in queries.children(run)
        ],
    }


def _budgets(last: list[Record]) -> list[Any]:
    """The budgets after the last model call: its own, and those that it shares."""
    ended = next((one.event for one in reversed(last) if isinstance(one.event, events.ModelCallEnded)), None)
    return [] if ended is None else to_builtins(ended.budgets)


def _turns(last: list[Record]) -> list[dict[str, Any]]:
    """The model calls: when they began and ended, tokens, cost and context."""
    begun: dict[str, float] = {}
    turns: list[dict[str, Any]] = []
    for record in last:
        match record.event:
            case events.ModelCallBegun():
                begun[record.key.removesuffix(".begun")] = record.at
            case events.ModelCallEnded(usage=usage) as ended:
                turns.append(
                    {
                        "seq": record.seq,
                        "from": begun.get(record.key, record.at),
                        "to": record.at,
                        "model": ended.model,
                        "input": usage.input,
                        "output": usage.output,
                        "cached": usage.cached,
                        "estimated": usage.estimated,
                        "cost": usage.cost,
                        "context": ended.context_tokens,
                        "failed": ended.error is not None,
                    }
                )
            case _:
                continue
    return turns


def _live_text(queries: Queries, run: str) -> str:
    """The text that the model has streamed in its present turn."""
    text: list[str] = []
    for one in queries.progress(run):
        progress = json.decode(one.body, type=Progress)
        if progress.event == "text":
            text.append(progress.content or "")
        elif progress.event in ("tool_call", "tokens"):
            text.clear()
    return "".join(text)[-_TEXT_LENGTH:]


def run_records(queries: Queries, run: str, after: int, limit: int, *, with_bodies: bool) -> dict[str, Any]:
    """A page of records."""
    state = found_run(queries, run)
    records = queries.records(run, after=after, limit=min(limit, MOST_RECORDS))
    return {"run": run, "seq": state.seq, "heads": list(record_rows(records, with_bodies=with_bodies))}


def run_notes(queries: Queries, run: str) -> dict[str, Any]:
    """The notes of a run."""
    state = found_run(queries, run)
    after = 0 if state.counts.notes else state.seq
    noted = (one for one in queries.records(run, after=after) if isinstance(one, Record))
    notes = [[one.seq, one.at, one.event.content] for one in noted if isinstance(one.event, events.Noted)]
    return {"run": run, "notes": notes}


# --- spans of a tree --------------------------------------------------------------------------------------------------

MOST_SPANS = 20_000
_SPAN_TEXT = 300


def tree_spans(queries: Queries, root: str) -> dict[str, Any]:
    """What each run of a tree did when: model calls, tool calls, waits and retries."""
    runs = statuses(queries, queries.tree(root) or [found_run(queries, root)])
    room, redactor, clock = MOST_SPANS // len(runs), process_redactor(), queries.now()
    lanes = [{"run": one.state.run, "spans": _spans(queries, one, max(20, room), redactor, clock)} for one in runs]
    return {"root": root, "lanes": lanes}


def _spans(queries: Queries, status: RunStatus, most: int, redactor: Redactor, clock: float) -> list[list[Any]]:
    state = status.state
    # The page counts by the wall clock.
    offset = time.time() - clock
    until = clock if is_open(status) else None
    lane = lane_of("", "", queries.records(state.run, after=max(0, state.seq - most)), redactor, until)
    return [
        [
            one.kind,
            one.begin + offset,
            None if one.end == until else one.end + offset,
            one.text if len(one.text) <= _SPAN_TEXT else shown_head(one.text, _SPAN_TEXT, redactor),
            one.seq,
        ]
        for one in lane.spans
    ]


# --- the diff ---------------------------------------------------------------------------------------------------------


def _worktree(queries: Queries, run: str) -> Worktree | None:
    for record in queries.records(run, limit=_FIRST):
        event = getattr(record, "event", None)
        if isinstance(event, events.StepEnded) and event.step == WORKTREE_OPENED and isinstance(event.result, Raw):
            return json.decode(event.result, type=WorktreeOpened).place
    return None


def run_diff(queries: Queries, run: str, path: str) -> Any:
    """The changed files of a run, or the patch of one of them."""
    state = found_run(queries, run)
    place = _worktree(queries, run)
    root = None if state.lineage is None else queries.state(state.lineage.root_id)
    if place is None or root is None:
        raise UsageError("diff", Unquoted("none"), "the run has no worktree or branch of its own")
    snapshot = snapshot_of(queries, state)
    if snapshot is None:
        found = find_place(place.folder, root.workspace, place.base, place.branch)
    else:
        work = find_work(place.branch, snapshot)
        if work is None:
            raise UsageError("diff", Unquoted("none"), "the worker has stored no changes of this run yet")
        found = DiffPlace(
            folder=work.folder, base=snapshot.commit, branch=place.branch, is_worktree=False, tip=work.tip
        )
    return patch_of(found, os.environ, path) if path else changed_files(found, os.environ)


# --- run again --------------------------------------------------------------------------------------------------------


def can_again(queries: Queries, state: State) -> bool:
    """Whether a run can be started once more."""
    return state.command in ("", "run", "delegate") and _start(queries, state.run) is not None


def _start(queries: Queries, run: str) -> events.RunOpened | events.Requested | None:
    event = next((one.event for one in queries.records(run, limit=1) if isinstance(one, Record)), None)
    return event if isinstance(event, events.RunOpened | events.Requested) else None


def again_command(queries: Queries, run: str, prompt: str, model: str) -> tuple[list[str], bytes, str]:
    """The arguments, the standard input and the folder of a command that does the work of a run once more."""
    state = found_run(queries, run)
    start = _start(queries, run)
    root = None if state.lineage is None else queries.state(state.lineage.root_id)
    if start is None or not can_again(queries, state):
        raise UsageError("ID", run, "start this command again in a terminal")
    folder = state.workspace or ("" if root is None else root.workspace)
    model = model or start.model or state.model
    named = ["--model", model] if model else []
    if isinstance(start, events.RunOpened) and state.command == "run":
        limits = [] if start.seconds is None else ["--timeout", f"{start.seconds:g}"]
        agent = [] if start.role is None else ["--agent", start.role.name]
        words = ["run", "--json", "--wait", *named, *limits, *agent, "--tools", ",".join(sorted(start.grant.tools))]
        return words, (prompt or start.prompt).encode(), folder
    call: dict[str, Any] = {}
    if isinstance(start, events.RunOpened):
        call = {} if start.arguments is UNSET else json.decode(start.arguments, type=dict[str, Any])
    else:
        tools = [name for name in asked_of(queries, state)["tools"] if name not in ALWAYS_GRANTED]
        call = {"tasks": [{"label": start.label, "prompt": start.request.prompt, "tools": tools}]}
    tasks = [_task(one, prompt) for one in call.get("tasks", ())]
    if not tasks:
        raise UsageError("ID", run, "it has no task to start again")
    return ["delegate", "--tasks", "-", "--json", "--wait", *named], json.encode({"tasks": tasks}), folder


_TASK_FIELDS = ("label", "prompt", "context", "model", "agent", "tools", "timeout", "isolation")


def _task(task: dict[str, Any], prompt: str) -> dict[str, Any]:
    fields = {name: task[name] for name in _TASK_FIELDS if task.get(name) is not None}
    return {**fields, "prompt": prompt} if prompt else fields
