"""Update a project's tasks from the journal before they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from deputy.journal.sqlite.reader import JournalReader
    from deputy.project_tasks.sync import RecordedOutcome
    from deputy.project_tasks.task_file import TaskFile


def sync_tasks(project: Path, home: Path | None = None) -> None:
    """Update the tasks whose command has ended; without such tasks no journal is opened."""
    from deputy.project_tasks.sync import unsettled
    from deputy.project_tasks.task_file import TaskFile

    tasks = TaskFile(project)
    if not unsettled(tasks):
        return
    from deputy.journal.home import home_path
    from deputy.journal.sqlite.reader import JournalReader

    reader = JournalReader.open_any(home_path() if home is None else home)
    if reader is not None:
        with reader:
            sync_from(reader, tasks)


def sync_from(reader: JournalReader, tasks: TaskFile) -> None:
    """The same with an open reader."""
    from deputy.project_tasks.sync import sync_tasks

    sync_tasks(tasks, lambda session_id: _ending(reader, session_id))


def _ending(reader: JournalReader, session_id: str) -> RecordedOutcome | None:
    from deputy.core.request import timestamp
    from deputy.journal.queries import outcome
    from deputy.project_tasks.sync import RecordedOutcome

    state = reader.state(session_id)
    ended = None if state is None else outcome(reader, state)
    if state is None or ended is None:
        return None
    at = state.requested_at if state.ended_at is None else state.ended_at
    return RecordedOutcome(outcome=ended, round=state.round, at=timestamp(at))
