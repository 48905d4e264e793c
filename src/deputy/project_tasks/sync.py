"""Update tasks whose command has ended from the outcome in the journal; every command that reads tasks does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from deputy.core.outcome import Cancelled, Outcome, Rejected
from deputy.core.project_task import dismissed, finished, proposed_by
from deputy.processes.outgoing import process_redactor

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.core.project_task import ProjectTask, TaskClaim
    from deputy.project_tasks.task_file import TaskFile


class RecordedOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a session's round, and its time."""

    outcome: Outcome
    round: int
    at: str


def sync_tasks(tasks: TaskFile, ending_of: Callable[[str], RecordedOutcome | None]) -> None:
    """Update every task whose command has ended; a task of a session in another journal stays."""
    for task in unsettled(tasks):
        work = task.work
        ending = None if work is None else ending_of(work.session_id)
        if work is not None and ending is not None and ending.round == work.round:
            tasks.change(task.number, lambda now, work=work, ending=ending: _synced(now, work, ending))
    for task in unsettled(tasks):
        asked = task.asked
        ending = None if asked is None else ending_of(asked.session_id)
        # A cancelled run did not claim the task to drop its question.
        if asked is not None and ending is not None and isinstance(ending.outcome, Cancelled):
            tasks.change(task.number, lambda now, asked=asked, at=ending.at: dismissed(now, asked, at))
    for task in unsettled(tasks):
        session_id = proposed_by(task)
        ending = ending_of(session_id) if session_id else None
        # Its command was not approved, so the task was never wanted.
        if ending is not None and isinstance(ending.outcome, Rejected | Cancelled):
            tasks.withdraw(task)


def unsettled(tasks: TaskFile) -> list[ProjectTask]:
    """The tasks that a command has claimed, has an open question about, or has added for itself."""
    return [task for task in tasks.tasks() if task.work is not None or task.asked is not None or proposed_by(task)]


def _synced(task: ProjectTask, seen: TaskClaim, ending: RecordedOutcome) -> ProjectTask:
    """The updated task, unless another session or round has claimed it meanwhile."""
    if task.work != seen:
        return task
    done = finished(task, seen.session_id, ending.outcome, ending.at)
    # The file may be committed, so the question, a model's text, is redacted; title and text are the user's own.
    return structs.replace(done, question=process_redactor().redact(done.question))
