"""Update a project's tasks from the journal before they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from deputy.engine.ports.queries import Queries
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
    from deputy.stores import open_queries

    queries = open_queries(home_path() if home is None else home)
    if queries is not None:
        with queries:
            sync_from(queries, tasks)


def sync_from(queries: Queries, tasks: TaskFile) -> None:
    """The same with an open queries."""
    from deputy.project_tasks.sync import sync_tasks

    sync_tasks(tasks, lambda session_id: _ending(queries, session_id))


def _ending(queries: Queries, session_id: str) -> RecordedOutcome | None:
    from deputy.core.request import timestamp
    from deputy.project_tasks.sync import RecordedOutcome

    state = queries.state(session_id)
    ended = None if state is None else queries.outcome(state)
    if state is None or ended is None:
        return None
    at = state.requested_at if state.ended_at is None else state.ended_at
    return RecordedOutcome(outcome=ended, round=state.round, at=timestamp(at))
