"""Check what a program passes to the library, before anything is spent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from deputy.core.effective_settings import EffectiveSettings
from deputy.core.errors import UsageError
from deputy.core.guard import Policy
from deputy.core.limits import Budget
from deputy.core.refinement import MOST_ROUNDS, AgentEvaluator
from deputy.core.task import Task, read_task

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from deputy.core.field_readers import FieldProblem
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
            raise UsageError("criteria", evaluator.criteria, "say what counts")
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


def check_options(**options: Any) -> None:
    """Raise unless every option of Deputy has the right type."""
    for name, value in options.items():
        is_right, right = _OPTIONS[name]
        if not is_right(value):
            raise UsageError(name, value, right)
    for index, tool in enumerate(options["tools"]):
        if not callable(tool) and not (hasattr(tool, "schema") and hasattr(tool, "run")):
            text = "give a typed function; the built-in tools of a task are named in Task(tools=…)"
            raise UsageError(f"tools[{index}]", tool, text)


_OPTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "model": (
        lambda value: value is None or (isinstance(value, str) and bool(value.strip())),
        "give 'provider:model', an alias, or None for the default",
    ),
    "models": (
        lambda value: value is None or _are_models(value),
        "give a dict of models, each with a `stream`, by the names they are asked by",
    ),
    "workspace": (
        lambda value: isinstance(value, str | Path) and Path(value).is_dir(),
        "give a directory that exists",
    ),
    "home": (lambda value: value is None or (isinstance(value, str | Path) and bool(str(value))), "give a path"),
    "budget": (lambda value: value is None or isinstance(value, Budget), "give a deputy.Budget"),
    "policy": (lambda value: value is None or isinstance(value, Policy), "give a deputy.Policy"),
    "tools": (lambda value: isinstance(value, list | tuple), "give a list of typed functions"),
    "approval": (lambda value: value in (None, "granted", "ask", "refuse"), "give 'granted', 'ask' or 'refuse'"),
    "answer": (lambda value: value is None or callable(value), "give an async function that takes a deputy.Question"),
    "watch": (lambda value: value is None or callable(value), "give a function that takes a deputy.Progress"),
    "allow": (
        lambda value: _members(value) is not None and all(isinstance(one, str) for one in _members(value) or ()),
        "give the names of tools",
    ),
    "private": (
        lambda value: all(isinstance(one, str | Path) for one in _members(value) or ()) and _members(value) is not None,
        "give a list of paths",
    ),
    "rules": (
        lambda value: value is None or isinstance(value, EffectiveSettings),
        "give deputy.core.effective_settings.EffectiveSettings, or None",
    ),
    "base_prompt": (lambda value: isinstance(value, str), "give a text"),
}


def _are_models(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    models = cast("dict[object, object]", value)
    return all(isinstance(name, str) and hasattr(model, "stream") for name, model in models.items())


def _members(value: object) -> tuple[object, ...] | None:
    """The members of a list or a set; None for anything else."""
    kinds = (list, tuple, set, frozenset)
    return tuple(cast("Iterable[object]", value)) if isinstance(value, kinds) else None


def check_tasks(tasks: object) -> None:
    """Raise unless it is a list of at least one task."""
    members = _members(tasks)
    if not members:
        raise UsageError("tasks", tasks, "give a list of at least one deputy.Task")
    for index, task in enumerate(members):
        if not isinstance(task, Task):
            raise UsageError(f"tasks[{index}]", task, "give a deputy.Task")


def check_task(task: Task, where: str) -> None:
    """Raise unless every field of a task follows the rules of the Delegate tool; its schema must be JSON already."""
    if task.timeout is not None and not _is_number(task.timeout, MAX_TIMEOUT_SECONDS):
        raise UsageError(
            f"{where}.timeout", task.timeout, f"give seconds above 0, and at most {MAX_TIMEOUT_SECONDS:.0f}"
        )
    _check_budget(task.budget, f"{where}.budget")
    problems: list[FieldProblem] = []
    fields = {name: getattr(task, name) for name in Task.__struct_fields__ if name not in ("schema", "budget", "role")}
    # The rules read JSON, which has no tuples.
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
