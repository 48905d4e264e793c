"""Print the outcome of a run or of a task command: the report for people, JSON for programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from deputy.core.errors import in_sentences, unrecoverable
from deputy.core.outcome import how_to_answer
from deputy.interfaces.cli.console import note, show, show_json, warn
from deputy.interfaces.text_lines import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.outcome import Outcome
    from deputy.core.project_task import ProjectTask
    from deputy.core.results import Result
    from deputy.interfaces.view.event_lines import EventLines
    from deputy.project_tasks.orchestrator import CommandResult

_WARNINGS, _WARNING_WIDTH = 10, 240


def show_outcome(
    outcome: Outcome,
    *,
    as_json: bool,
    is_shown: bool = False,
    with_usage: bool = False,
    results: Sequence[Result] = (),
    lines: EventLines | None = None,
) -> None:
    """Print the report on standard output, unless `is_shown`, and how the run ended on standard error.

    The usage of a completed run is printed at a terminal or `with_usage`. With `lines` the outcome is the last event.
    """
    if lines is not None:
        lines.write("result", outcome_of(outcome, results))
        return
    if as_json:
        show_json(outcome_of(outcome, results))
        return
    if outcome.report and not is_shown and outcome.report != getattr(outcome, "question", ""):
        from deputy.interfaces.view.renderers import show_markdown

        show_markdown(outcome.report if outcome.report.endswith("\n") else f"{outcome.report}\n")
    print_warnings(outcome)
    for line in _ending(outcome, with_usage=with_usage or sys.stderr.isatty()):
        note(line)


async def show_ended(
    ended: Sequence[CommandResult],
    workspace: str,
    *,
    as_json: bool,
    lines: EventLines | None = None,
    is_range: bool = False,
) -> None:
    """Print the outcome of each task command with its task and branch; with `lines` as the last events."""
    import asyncio

    # git may be slow.
    merges = [await asyncio.to_thread(_merge_dict, one, workspace) for one in ended]
    forms = [
        {**outcome_of(one.outcome), "task": _task_dict(one.task), "merge": merge}
        for one, merge in zip(ended, merges, strict=True)
    ]
    if lines is not None:
        for form in forms:
            lines.write("result", form)
    elif as_json:
        show_json({"outcomes": forms} if is_range else forms[0])
    else:
        for one, merge in zip(ended, merges, strict=True):
            _show_command(one, merge)


def print_warnings(outcome: Outcome) -> None:
    """Print the outcome's warnings on standard error, except those that the report has."""
    for warning in [warning for warning in outcome.warnings if warning not in outcome.report][:_WARNINGS]:
        warn(f"warning: {one_line(warning, _WARNING_WIDTH)}")


def outcome_of(outcome: Outcome, results: Sequence[Result] = ()) -> dict[str, Any]:
    """The outcome as JSON; a call of many tasks has the result of each."""
    from deputy.core.results import results_dict
    from deputy.core.serialize import outcome_dict

    form = outcome_dict(outcome)
    return {**form, "results": results_dict(results)["results"]} if results else form


def remedy(session_id: str, outcomes: Sequence[Outcome]) -> str:
    """How to continue tasks that did not complete; empty when none of them ran."""
    statuses = {outcome.status for outcome in outcomes if outcome.session_id and _can_continue(outcome)}
    if not statuses & {"partial", "failed", "blocked", "cancelled"}:
        return ""
    asking = [outcome.session_id for outcome in outcomes if outcome.status == "blocked"]
    if len(asking) == 1:
        return f'to answer and continue: deputy resume {asking[0]} --answer "…"'
    text = "to answer and continue" if asking else "to continue what is not complete"
    # The report of a single task names its own id.
    return f"{text}: deputy resume {outcomes[0].session_id if len(outcomes) == 1 else session_id}"


def _can_continue(outcome: Outcome) -> bool:
    """Whether a plain resume can make progress: the budget is not spent, and no person must approve or act first."""
    is_refused = any(error.type == "budget" or error.code == "CONTEXT_CHANGED" for error in outcome.errors[:1])
    return not is_refused and unrecoverable(outcome.errors) is None


def _errors(outcome: Outcome) -> list[str]:
    # The advice is about the user's own choice, so a fallback only says why it did not help.
    return [
        f"deputy: {in_sentences(error.message, '' if error.candidate else error.recommendation)}"
        for error in outcome.errors[:3]
    ]


def _ending(outcome: Outcome, *, with_usage: bool) -> list[str]:
    from deputy.interfaces.text_lines import cost_part, elapsed, tokens

    usage = outcome.usage
    cost = cost_part(usage.cost) if usage.cost_text else ""
    seconds = elapsed(outcome.duration_seconds)
    counted = tokens(usage.input, usage.output, estimated=usage.estimated)
    used = " · ".join(filter(None, (counted, cost, seconds, outcome.model)))
    if outcome.status == "completed":
        return [f"{outcome.session_id} completed · {used}"] if with_usage else []
    lines = [f"{outcome.session_id} {outcome.status} · {used}", *_errors(outcome)]
    if outcome.next_steps and not any(outcome.next_steps in line for line in lines):
        lines.append(f"next: {outcome.next_steps}")
    text = remedy(outcome.session_id, [outcome])
    if text and not any("deputy resume" in line for line in lines):
        lines.append(f"deputy: {text}")
    return lines


def _task_dict(task: ProjectTask | None) -> dict[str, Any] | None:
    names = ("number", "title", "status", "question", "artifacts")
    return None if task is None else {name: getattr(task, name) for name in names}


def _merge_dict(ended: CommandResult, workspace: str) -> dict[str, str] | None:
    """The branch of a command, what it changes, and the command that merges it; None if there is nothing to merge."""
    if not ended.outcome.branch:
        return None
    import os

    from deputy.tools.git_merge import branch_changes

    changes = branch_changes(workspace, os.environ, ended.outcome.branch, with_patch=False)
    if changes is None:
        return None
    command = f"git merge {changes.branch}" if ended.task is None else f"deputy merge {ended.task.number}"
    return {"branch": changes.branch, "commit": changes.commit, "diff_stat": changes.stat, "command": command}


def _is_error(outcome: Outcome) -> bool:
    """Whether the summary is the sentence of an error, which is printed anyway."""
    return outcome.status == "failed" and any(outcome.summary in line for line in _errors(outcome))


def _show_command(ended: CommandResult, merge: dict[str, str] | None) -> None:
    """Print one task command for a person: summary, artifacts, branch, state of the task and what to do next."""
    outcome, task = ended.outcome, ended.task
    if not _is_error(outcome):
        show(outcome.summary)
    for artifact in outcome.artifacts:
        show(f"  {artifact.path}")
    if merge is None and outcome.branch:
        show(f"Branch: {outcome.branch}")
    elif merge is not None:
        show(f"Branch: {merge['branch']}\n{merge['diff_stat']}Merge it: {merge['command']}")
    if task is not None:
        note(f"Task {task.number} is {task.status}.")
    print_warnings(outcome)
    if outcome.status != "completed":
        _show_shortcoming(outcome)


def _show_shortcoming(outcome: Outcome) -> None:
    if outcome.status == "rejected":
        # The summary says why. What to do about a denied call is advice for a model that made it.
        for error in outcome.errors[:1]:
            if error.code != "NOT_APPROVED":
                warn(error.recommendation)
        return
    warn(f"{outcome.session_id} {outcome.status}")
    errors = _errors(outcome)
    for line in errors:
        note(line)
    if outcome.status == "blocked":
        note(how_to_answer(outcome.session_id))
    elif remedy(outcome.session_id, [outcome]) and not any("deputy resume" in line for line in errors):
        note(f"Continue it: deputy resume {outcome.session_id}")
