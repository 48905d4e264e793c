"""Check what a program passes to the library, before anything is spent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from deputy.core.errors import UsageError
from deputy.core.refinement import MOST_ROUNDS, AgentEvaluator
from deputy.core.task import Task, label_of, task_problems
from deputy.interfaces.safe_text import safe_message

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from deputy.core.refinement import Evaluator

MAX_TIMEOUT_SECONDS = 30 * 86400.0


def check_concurrency(concurrency: object) -> None:
    """Raise unless it is a whole number of at least 1."""
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise UsageError("concurrency", concurrency, "give a whole number of at least 1")


def check_prompt(prompt: object) -> None:
    """Raise unless it is a text that is not blank."""
    if not isinstance(prompt, str) or not prompt.strip():
        raise UsageError("prompt", prompt, "say in words what should be done")


def check_refinement(evaluator: Evaluator, rounds: object, workspace: Path) -> None:
    """Raise unless the evaluator and the number of rounds are usable."""
    if isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= MOST_ROUNDS:
        raise UsageError("rounds", rounds, f"give a whole number from 1 to {MOST_ROUNDS}")
    if isinstance(evaluator, AgentEvaluator):
        if not evaluator.criteria.strip():
            raise UsageError("criteria", evaluator.criteria, "say what the work must fulfil")
    elif not evaluator.argv or not evaluator.argv[0]:
        raise UsageError("evaluator", evaluator.argv, "give a program, and its arguments")
    elif not _is_number(evaluator.seconds, MAX_TIMEOUT_SECONDS):
        raise UsageError("evaluator.seconds", evaluator.seconds, "give seconds above 0")
    else:
        from deputy.processes.environment import scrubbed
        from deputy.processes.evaluator_script import why_not_startable

        if text := why_not_startable(evaluator.argv[0], workspace, scrubbed(os.environ)):
            raise UsageError("evaluator", evaluator.argv[0], text)


def check_tools(names: Iterable[str], known: Collection[str], where: str) -> None:
    """Raise when a tool is unknown; whether it is granted is decided by the guard."""
    for name in names:
        if name not in known:
            raise UsageError(where, name, f"unknown tool; known tools: {', '.join(sorted(known))}")


def check_id(session_id: object) -> None:
    """Raise unless it is a text."""
    if not isinstance(session_id, str) or not session_id:
        raise UsageError("session_id", session_id, "give the session id of a run, as `outcome.session_id` has it")


def _members(value: object) -> tuple[object, ...] | None:
    """The members of a list or a set; None for anything else."""
    kinds = (list, tuple, set, frozenset)
    return tuple(cast("Iterable[object]", value)) if isinstance(value, kinds) else None


def as_tasks(work: object) -> tuple[Task, ...]:
    """The tasks of a call; a text is the prompt of a task, whose label is made from its words."""
    members = _members(work)
    if not members:
        raise UsageError("tasks", work, "give a list of at least one deputy.Task or prompt")
    tasks: list[Task] = []
    taken: set[str] = set()
    for index, one in enumerate(members):
        match one:
            case Task():
                tasks.append(one)
            case str() if one.strip():
                label = label_of(safe_message(one))
                tasks.append(Task(label=f"{label}-{index + 1}" if label in taken else label, prompt=one))
            case _:
                raise UsageError(f"tasks[{index}]", one, "give a deputy.Task, or a prompt that is not empty")
        taken.add(tasks[-1].label)
    return tuple(tasks)


def check_task(task: Task, where: str) -> None:
    """Raise unless every field of a task follows the rules of the Delegate tool; its schema must be JSON already."""
    if task.timeout is not None and not _is_number(task.timeout, MAX_TIMEOUT_SECONDS):
        raise UsageError(
            f"{where}.timeout", task.timeout, f"give seconds above 0, and at most {MAX_TIMEOUT_SECONDS:.0f}"
        )
    for name in task.budget.capped:
        if not (cap := getattr(task.budget, name)):
            raise UsageError(f"{where}.budget.{name}", cap, "give a number above 0")
    for problem in task_problems(task, where):
        value = getattr(task, problem.field.rpartition(".")[2])
        raise UsageError(problem.field, value, problem.message.rpartition("; it ")[2])


def _is_number(value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= most
