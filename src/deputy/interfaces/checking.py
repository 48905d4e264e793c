"""What a program asks for, checked before anything is spent, by the rules that hold for a model's call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from deputy.core.errors import UsageError
from deputy.core.refinement import MOST_ROUNDS, AgentEvaluator
from deputy.core.task import Task, read_task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deputy.core.field_readers import FieldProblem
    from deputy.core.limits import Budget
    from deputy.core.refinement import Evaluator

MAX_TIMEOUT_SECONDS = 30 * 86400.0


def check_concurrency(concurrency: object) -> None:
    """Raise unless work can go on with so many at once."""
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise UsageError("concurrency", concurrency, "give a whole number of at least 1")


def check_prompt(prompt: str) -> None:
    """Raise unless it says something."""
    if not prompt.strip():
        raise UsageError("prompt", prompt, "say what should be done")


def check_refinement(evaluator: Evaluator, rounds: object) -> None:
    """Raise unless a loop of so many rounds can be judged so."""
    if isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= MOST_ROUNDS:
        raise UsageError("rounds", rounds, f"give a whole number from 1 to {MOST_ROUNDS}")
    if isinstance(evaluator, AgentEvaluator):
        if not evaluator.criteria.strip():
            raise UsageError("criteria", evaluator.criteria, "say what counts")
    elif not evaluator.argv or not evaluator.argv[0]:
        raise UsageError("evaluator", evaluator.argv, "give a program, and its arguments")
    elif not _is_number(evaluator.seconds, MAX_TIMEOUT_SECONDS):
        raise UsageError("evaluator.seconds", evaluator.seconds, "give seconds above 0")


def check_kinds(tasks: Iterable[object]) -> None:
    """Raise unless every one is a task."""
    for index, task in enumerate(tasks):
        if not isinstance(task, Task):
            raise UsageError(f"tasks[{index}]", task, "give a deputy.Task")


def check_task(task: Task, where: str) -> None:
    """Raise unless every field of a task is as a model would have to give it, its schema being data by now."""
    if task.timeout is not None and not _is_number(task.timeout, MAX_TIMEOUT_SECONDS):
        raise UsageError(
            f"{where}.timeout", task.timeout, f"give seconds above 0, and at most {MAX_TIMEOUT_SECONDS:.0f}"
        )
    _check_budget(task.budget, f"{where}.budget")
    problems: list[FieldProblem] = []
    fields = {name: getattr(task, name) for name in Task.__struct_fields__ if name not in ("schema", "budget")}
    # The rules read what JSON can say, which has no tuples.
    form = {
        name: list(cast("tuple[Any]", value)) if isinstance(value, tuple) else value for name, value in fields.items()
    }
    read_task(form, where, problems)
    if problems:
        first = problems[0]
        name = first.field.rpartition(".")[2]
        raise UsageError(first.field, fields.get(name), f"it {first.message}")


def _check_budget(budget: Budget, where: str) -> None:
    for name in ("tokens", "cost", "requests"):
        cap = getattr(budget, name)
        if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or cap < 1):
            raise UsageError(f"{where}.{name}", cap, "give a whole number of at least 1 (a cost in billionths of $1)")


def _is_number(value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= most
