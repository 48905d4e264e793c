"""Print the outcome of a task command, started or resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deputy.core.outcome import how_to_answer
from deputy.interfaces.cli.outcome_output import outcome_of, print_warnings, remedy
from deputy.interfaces.cli.output import show, show_json
from deputy.interfaces.text_lines import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.project_task import ProjectTask
    from deputy.interfaces.view.event_lines import EventLines
    from deputy.project_tasks.orchestrator import CommandResult


def show_ended(
    ended: Sequence[CommandResult], *, as_json: bool, lines: EventLines | None = None, is_range: bool = False
) -> None:
    """Print each outcome with the state of its task; with `--events -` as the last events."""
    forms = [{**outcome_of(one.outcome), "task": _task_dict(one.task)} for one in ended]
    if lines is not None:
        for form in forms:
            lines.write("result", form)
    elif as_json:
        show_json({"outcomes": forms} if is_range else forms[0])
    else:
        for one in ended:
            _emit(one)


def _task_dict(task: ProjectTask | None) -> dict[str, Any] | None:
    if task is None:
        return None
    names = ("number", "title", "status", "question", "artifacts")
    return {name: getattr(task, name) for name in names}


def _emit(ended: CommandResult) -> None:
    """Print one outcome for a person: summary, artifacts, state of the task and what to do next."""
    outcome, task = ended.outcome, ended.task
    show(outcome.summary)
    for artifact in outcome.artifacts:
        show(f"  {artifact.path}")
    if outcome.branch:
        show(f"  on the branch {outcome.branch}")
    if task is not None:
        click.echo(plain(f"Task {task.number} is {task.status}."), err=True)
    print_warnings(outcome)
    if outcome.status == "completed":
        return
    click.echo(f"deputy: {outcome.session_id} {outcome.status}", err=True)
    for error in outcome.errors[:3]:
        click.echo(plain(f"deputy: {error.message} {error.recommendation}".rstrip()), err=True)
    if outcome.status == "blocked":
        click.echo(how_to_answer(outcome.session_id), err=True)
    elif remedy(outcome.session_id, [outcome]):
        click.echo(f"Continue it: deputy resume {outcome.session_id}", err=True)
