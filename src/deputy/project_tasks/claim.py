"""Claim a project task before its command works on it; a step of the run, so a resumed run claims it again."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from deputy.core.errors import Error, StorageError, TaskBusy, UsageError
from deputy.core.events import Requested
from deputy.core.outcome import Rejected, shortened
from deputy.core.project_task import MOVES, OVER, begun, has_worked_on
from deputy.core.request import timestamp
from deputy.core.state import CLAIM
from deputy.engine.dispatch import outcome_before
from deputy.project_tasks.task_file import TaskFile

if TYPE_CHECKING:
    from deputy.core.outcome import Outcome
    from deputy.core.project_task import ProjectTask
    from deputy.core.request import Lineage
    from deputy.engine.ports import RunContext, RunStart


class ClaimArgs(Struct, frozen=True, kw_only=True):
    """The task to claim, and the session and round that claim it."""

    project: str
    number: int | None
    """None for a command without a task, which only needs its folder."""
    command: str
    session_id: str
    round: int
    at: float
    title: str = ""
    """The task's title when the session was requested."""
    folder: str = ""
    """The folder of the task's artifacts."""


async def claim_task(run: RunContext, start: RunStart) -> Outcome | None:
    """Claim the task of a command before the run works; an outcome if it cannot be claimed."""
    number = run.state.task_number
    if not isinstance(start, Requested) or start.parent is not None or start.command not in MOVES:
        return None
    args = ClaimArgs(
        project=start.workspace,
        number=number,
        command=start.command,
        session_id=run.run,
        round=run.state.round,
        at=run.state.requested_at if run.state.resumed_at is None else run.state.resumed_at,
        title=_title(start),
        folder=start.options.folder,
    )
    refusal = await _refusal(run, args)
    return None if refusal is None else _unchanged_outcome(run, refusal)


def _unchanged_outcome(run: RunContext, refusal: Rejected) -> Outcome:
    """The outcome when the task could not be claimed: that of an earlier round, with a warning, else the refusal."""
    before = outcome_before(run)
    if before is None:
        return refusal
    warnings = dict.fromkeys((*before.warnings, refusal.summary))
    return structs.replace(before, warnings=tuple(warnings))


async def _refusal(run: RunContext, args: ClaimArgs) -> Rejected | None:
    error = await run.value(CLAIM, Error | None, partial(asyncio.to_thread, _claimed, args))
    if error is None:
        return None
    return not_started(run.lineage, error)


def not_started(lineage: Lineage, error: Error) -> Rejected:
    """The outcome of a command whose task cannot be claimed."""
    return Rejected(lineage=lineage, summary=shortened(f"Not started: {error.message}"), errors=(error,))


def refusal_of(task: ProjectTask, command: str, session_id: str) -> Error | None:
    """Why a command cannot begin with a task as it is now; nothing is changed."""
    try:
        begun(task, command, session_id, "")
    except TaskBusy as error:
        return _busy(error)
    except UsageError as error:
        return _not_claimed("TASK_STATE", str(error), _remedy(task))
    return None


def _claimed(args: ClaimArgs) -> Error | None:
    """Claim the task under the lock of the task file; return the error when that fails."""
    file, at = TaskFile(Path(args.project)), timestamp(args.at)

    def take(task: ProjectTask) -> ProjectTask:
        _check_same(task, args)
        return begun(task, args.command, args.session_id, at, args.round)

    try:
        if args.number is not None:
            file.change(args.number, take)
        file.make_folder(args.folder)
    except TaskBusy as error:
        return _busy(error)
    except UsageError as error:
        task = next((task for task in file.tasks() if task.number == args.number), None)
        is_same = task is not None and not _is_another(task, args)
        remedy = _remedy(task) if task is not None and is_same else f"To see its status: deputy task show {args.number}"
        return _not_claimed("TASK_STATE", str(error), remedy)
    except StorageError as error:
        return _not_claimed("TASK_FILE", str(error), "Repair the task file, then start again.")
    return None


def _remedy(task: ProjectTask) -> str:
    if task.status in OVER:
        return f"To work on it again: deputy task reopen {task.number}"
    return f"To see its status: deputy task show {task.number}"


def _busy(error: TaskBusy) -> Error:
    return _not_claimed("TASK_BUSY", str(error), f"Follow it: deputy watch {error.session_id}")


def _title(start: Requested) -> str:
    context = start.request.task_context
    return "" if context is None else context.description or ""


def _check_same(task: ProjectTask, args: ClaimArgs) -> None:
    """Refuse a resumed session whose number now belongs to another task."""
    if _is_another(task, args):
        raise UsageError(f"task {task.number}", task.title, f"session {args.session_id} was about another task")


def _is_another(task: ProjectTask, args: ClaimArgs) -> bool:
    return bool(args.round) and not has_worked_on(task, args.session_id) and task.title != args.title


def _not_claimed(code: str, message: str, remedy: str) -> Error:
    return Error(type="validation", code=code, message=message, recoverable=True, recommendation=remedy)
