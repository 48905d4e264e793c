"""Project tasks, and the table of their status transitions."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never, get_args

from msgspec import Struct, json, structs

from deputy.core.errors import TaskBusy, UsageError
from deputy.core.outcome import Blocked, Cancelled, Completed, Failed, Partial, Rejected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.core.outcome import Outcome

TaskStatus: TypeAlias = Literal[
    "not started", "in progress", "researched", "planned", "completed", "blocked", "abandoned"
]
TASK_STATUSES: tuple[TaskStatus, ...] = get_args(TaskStatus)
OVER: frozenset[TaskStatus] = frozenset({"completed", "abandoned"})
MAX_TITLE = 200
MAX_DIGITS = 9
MAX_RANGE = 100


class TaskClaim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command that runs on a task, and the status of the task before it."""

    command: str
    session_id: str
    since: str
    before: TaskStatus
    round: int = 0
    is_late: bool = False
    """Whether another session has worked on the task since; then this one never moves the status back."""


class HistoryEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry in the history of a task."""

    at: str
    what: str
    session_id: str = ""
    outcome: str = ""
    branch: str = ""
    draft: str = ""
    """The digest of a task that a session added for its own command."""


class ProjectTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task of a project."""

    number: int
    title: str
    text: str = ""
    language: str = ""
    complexity: str = ""
    status: TaskStatus = "not started"
    question: str = ""
    artifacts: tuple[str, ...] = ()
    work: TaskClaim | None = None
    asked: TaskClaim | None = None
    """The command whose question blocks it."""
    history: tuple[HistoryEntry, ...] = ()

    @property
    def folder(self) -> str:
        """The name of its artifacts folder: the number and a slug of the title."""
        return f"{self.number:03}_{slug(self.title)}"


class BranchChanges(Struct, frozen=True, kw_only=True):
    """What a branch adds to the one that is checked out."""

    branch: str
    commit: str
    stat: str
    """The changed files with the number of changed lines."""
    patch: str = ""


class Move(Struct, frozen=True):
    """A status transition: the statuses from which a command may start, and the status after completion."""

    begins_at: frozenset[TaskStatus]
    completes_as: TaskStatus | None
    """None keeps the status."""


_OPEN: frozenset[TaskStatus] = frozenset({"not started", "in progress", "researched", "planned", "blocked"})
MOVES: Mapping[str, Move] = {
    "research": Move(_OPEN - {"planned"}, "researched"),
    "plan": Move(_OPEN, "planned"),
    "implement": Move(_OPEN, "completed"),
    "revise": Move(_OPEN - {"not started"}, "planned"),
    "review": Move(frozenset({*_OPEN, "completed"}), None),
}


def begun(task: ProjectTask, command: str, session_id: str, at: str, round_: int = 0) -> ProjectTask:
    """Claim the task for a command, unless the table or a running command forbids it."""
    if task.work is not None and (task.work.session_id, task.work.round) == (session_id, round_):
        # A replay of the same claim.
        return task
    if task.work is not None:
        raise TaskBusy(task.number, f"{task.work.command} running since {task.work.since}", task.work.session_id)
    move = MOVES[command]
    if task.status not in move.begins_at:
        allowed = ", ".join(status for status in TASK_STATUSES if status in move.begins_at)
        raise UsageError(f"task {task.number}", task.status, f"{command} needs a task that is {allowed}")
    entry = HistoryEntry(at=at, what=f"{command} began", session_id=session_id)
    last = next((entry.session_id for entry in reversed(task.history) if entry.session_id), "")
    return structs.replace(
        task,
        # A review does not reopen a finished task.
        status=task.status if task.status in OVER else "in progress",
        work=TaskClaim(
            command=command,
            session_id=session_id,
            since=at,
            before=task.status,
            round=round_,
            is_late=has_worked_on(task, session_id) and last != session_id,
        ),
        history=(*task.history, entry),
    )


def has_worked_on(task: ProjectTask, session_id: str) -> bool:
    """Whether a session has ever claimed this task."""
    return any(entry.session_id == session_id for entry in task.history)


def proposed(draft: ProjectTask, session_id: str) -> ProjectTask:
    """The task as a session adds it for its own command."""
    entry = structs.replace(draft.history[0], session_id=session_id, draft=_draft_digest(draft))
    return structs.replace(draft, history=(entry,))


def last_branch(task: ProjectTask) -> HistoryEntry | None:
    """The end of the latest session that left a branch."""
    return next((entry for entry in reversed(task.history) if entry.branch), None)


def proposed_by(task: ProjectTask) -> str:
    """The session that added the task for its own command, until a command, or a person by hand, changes the task."""
    match task.history:
        case (HistoryEntry(draft=draft, session_id=session_id),) if draft and draft == _draft_digest(task):
            return session_id
        case _:
            return ""


def _draft_digest(task: ProjectTask) -> str:
    return sha256(json.encode(structs.replace(task, history=()))).hexdigest()[:16]


def finished(task: ProjectTask, session_id: str, outcome: Outcome, at: str) -> ProjectTask:
    """The task after the outcome of its running command; the outcome of another session changes nothing."""
    work = task.work
    if work is None or work.session_id != session_id:
        return task
    status, question = _status_after(task, work, outcome)
    if isinstance(outcome, Cancelled) and task.asked is not None and task.asked.session_id == session_id:
        # A cancelled command needs no answer.
        status, question = task.asked.before, ""
    elif work.is_late and not _is_further(status, work.before):
        status, question = work.before, task.question
    paths = (artifact.path for artifact in outcome.artifacts)
    what = f"{work.command} ended"
    entry = HistoryEntry(at=at, what=what, session_id=session_id, outcome=outcome.status, branch=outcome.branch)
    return structs.replace(
        task,
        status=status,
        question=question,
        artifacts=tuple(dict.fromkeys((*task.artifacts, *paths))),
        work=None,
        asked=_asked_after(task, work, outcome) if status == "blocked" else None,
        history=(*task.history, entry),
    )


def dismissed(task: ProjectTask, asked: TaskClaim, at: str) -> ProjectTask:
    """The task without the question of a cancelled command: its status is that from before the command."""
    if task.asked != asked:
        return task
    entry = HistoryEntry(at=at, what=f"{asked.command} ended", session_id=asked.session_id, outcome="cancelled")
    task = structs.replace(task, question="", asked=None, history=(*task.history, entry))
    if task.work is None:
        return structs.replace(task, status=asked.before)
    return structs.replace(task, work=structs.replace(task.work, before=asked.before))


def _asked_after(task: ProjectTask, work: TaskClaim, outcome: Outcome) -> TaskClaim | None:
    if not isinstance(outcome, Blocked) or work.is_late:
        return task.asked
    # The earlier question is obsolete: a dismissal goes back to the status before both.
    return work if task.asked is None else structs.replace(work, before=task.asked.before)


def _status_after(task: ProjectTask, work: TaskClaim, outcome: Outcome) -> tuple[TaskStatus, str]:
    match outcome:
        case Completed():
            return MOVES[work.command].completes_as or work.before, ""
        case Partial():
            return (work.before if work.before in OVER else "in progress"), ""
        case Blocked(question=question):
            return "blocked", question
        case Failed() | Cancelled() | Rejected():
            return work.before, task.question
        case _:
            assert_never(outcome)


def _is_further(status: TaskStatus, before: TaskStatus) -> bool:
    """Whether a late session may set this status: it never blocks the task or leaves it in progress."""
    return status not in ("blocked", "in progress") and TASK_STATUSES.index(status) >= TASK_STATUSES.index(
        "in progress" if before == "blocked" else before
    )


def released(task: ProjectTask, work: TaskClaim, at: str) -> ProjectTask:
    """The task without the claim of a command that will never report an outcome."""
    if task.work != work:
        return task
    entry = HistoryEntry(at=at, what=f"{work.command} released", session_id=work.session_id)
    return structs.replace(task, status=work.before, work=None, history=(*task.history, entry))


def abandoned(task: ProjectTask, at: str) -> ProjectTask:
    """Abandon the task, unless a command is running on it."""
    _idle(task)
    return _moved(task, "abandoned", at)


def reopened(task: ProjectTask, at: str) -> ProjectTask:
    """Reopen the task, unless a command is running on it."""
    _idle(task)
    return _moved(task, "in progress" if task.artifacts else "not started", at)


def _idle(task: ProjectTask) -> None:
    if task.work is not None:
        raise UsageError(
            f"task {task.number}", f"{task.work.command} is running", f"cancel session {task.work.session_id} first"
        )


def _moved(task: ProjectTask, status: TaskStatus, at: str) -> ProjectTask:
    if task.status == status:
        raise UsageError(f"task {task.number}", status, "the task already has this status; nothing was changed")
    entry = HistoryEntry(at=at, what=f"{task.status} → {status}")
    return structs.replace(task, status=status, question="", asked=None, history=(*task.history, entry))


def read_numbers(text: str) -> tuple[int, ...] | None:
    """The task numbers in a text: `12`, or a range such as `105-107`; None if it is neither."""
    first, dash, last = text.strip().partition("-")
    if not first.isdecimal() or not first.isascii() or (dash and not (last.isdecimal() and last.isascii())):
        return None
    numbers = [_number(part, text) for part in ((first, last) if dash else (first,))]
    if len(numbers) == 1:
        return (numbers[0],)
    if numbers[0] > numbers[1] or numbers[1] - numbers[0] >= MAX_RANGE:
        raise UsageError("task", text, f"a range is ascending and has at most {MAX_RANGE} tasks, like 105-107")
    return tuple(range(numbers[0], numbers[1] + 1))


def _number(text: str, whole: str) -> int:
    if text.startswith("0"):
        raise UsageError("task", whole, "a task number is 1 or more, without leading zeros")
    if len(text) > MAX_DIGITS:
        raise UsageError("task", whole, f"a task number has at most {MAX_DIGITS} digits")
    return int(text)


def slug(title: str) -> str:
    """A title as part of a path: lower-case letters, digits and single underscores."""
    kept = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in title.lower())
    return "_".join(kept.split())[:40].rstrip("_") or "task"
