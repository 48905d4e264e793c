"""Bringing a project's tasks up to date with the journal, wherever somebody looks at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from deputy.commands.settling import Ending
    from deputy.commands.task_file import TaskFile
    from deputy.journal.reader import Reader


def settle_tasks(project: Path, home: Path | None = None) -> None:
    """Settle the tasks of a project whose command has ended; mostly there are none, and no journal is opened."""
    from deputy.commands.settling import unsettled
    from deputy.commands.task_file import TaskFile

    tasks = TaskFile(project)
    if not unsettled(tasks):
        return
    from deputy.journal.home import home_path
    from deputy.journal.reader import Reader

    reader = Reader.open_any(home_path() if home is None else home)
    if reader is not None:
        with reader:
            settle_from(reader, tasks)


def settle_from(reader: Reader, tasks: TaskFile) -> None:
    """The same from a journal that is open."""
    from deputy.commands.settling import settle

    settle(tasks, lambda session_id: _ending(reader, session_id))


def _ending(reader: Reader, session_id: str) -> Ending | None:
    from deputy.commands.settling import Ending
    from deputy.core.request import timestamp
    from deputy.journal.registry import outcome

    state = reader.state(session_id)
    ended = None if state is None else outcome(reader, state)
    if state is None or ended is None:
        return None
    at = state.requested_at if state.ended_at is None else state.ended_at
    return Ending(outcome=ended, round=state.round, at=timestamp(at))
