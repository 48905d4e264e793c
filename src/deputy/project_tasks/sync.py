"""Tasks whose command has ended are settled by its outcome, by whoever looks: never before the journal has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from deputy.core.outcome import Cancelled, Outcome
from deputy.core.project_task import dismissed, finished
from deputy.processes.outgoing import process_redactor

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.core.project_task import ProjectTask, TaskClaim
    from deputy.project_tasks.task_file import TaskFile


class RecordedOutcome(Struct, frozen=True, kw_only=True):
    """How a go of a session ended, and when."""

    outcome: Outcome
    round: int
    at: str


def sync_tasks(tasks: TaskFile, ending_of: Callable[[str], RecordedOutcome | None]) -> None:
    """Settle every task whose command has ended in the journal; one of another journal is left as it is."""
    for task in unsettled(tasks):
        work = task.work
        ending = None if work is None else ending_of(work.session_id)
        if work is not None and ending is not None and ending.round == work.round:
            tasks.change(task.number, lambda now, work=work, ending=ending: _synced(now, work, ending))
    for task in unsettled(tasks):
        asked = task.asked
        ending = None if asked is None else ending_of(asked.session_id)
        # Nobody takes a task to drop a question about it.
        if asked is not None and ending is not None and isinstance(ending.outcome, Cancelled):
            tasks.change(task.number, lambda now, asked=asked, at=ending.at: dismissed(now, asked, at))


def unsettled(tasks: TaskFile) -> list[ProjectTask]:
    """The tasks that a command has taken and not given back, or has asked about."""
    return [task for task in tasks.tasks() if task.work is not None or task.asked is not None]


def _synced(task: ProjectTask, seen: TaskClaim, ending: RecordedOutcome) -> ProjectTask:
    """The task settled, unless it is in other hands by now, or taken again."""
    if task.work != seen:
        return task
    done = finished(task, seen.session_id, ending.outcome, ending.at)
    # The file stands in the project. The question is the model's text; the title and text are the user's own.
    return structs.replace(done, question=process_redactor().redact(done.question))
