"""What a person is shown before subagents are started: how many, for what, with what, and what it can cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.limits import NANOS_PER_DOLLAR
from deputy.core.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.task import Task

GOAL_LENGTH = 60


def spawn_summary(tasks: Sequence[Task], *, model: str, risk: str, ceiling: int | None) -> str:
    """One approval for a whole call."""
    goals = "; ".join(f"[{task.label}] {_cut(task.prompt)}" for task in tasks)
    models = ", ".join(dict.fromkeys(task.model or model for task in tasks))
    tools = ", ".join(dict.fromkeys(tool for task in tasks for tool in task.tools or ("read-only",)))
    plural = "s" * (len(tasks) != 1)
    cost = "not capped" if ceiling is None else f"at most ${ceiling / NANOS_PER_DOLLAR:.2f}"
    return (
        f"Spawn {len(tasks)} subagent{plural}: {goals}\nmodel: {models} · tools: {tools} · risk: {risk} · cost: {cost}"
    )


def cost_ceiling(tasks: Sequence[Task]) -> int | None:
    """The most that the tasks can cost together; None when one of them has no cap."""
    caps = [task.budget.cost for task in tasks]
    known = [cap for cap in caps if cap is not None]
    return sum(known) if len(known) == len(caps) else None


def _cut(text: str) -> str:
    # Before it is cut: half a secret does not look like one any more.
    flat = " ".join(Redactor().redact(text[: GOAL_LENGTH * 4]).split())
    return flat if len(flat) <= GOAL_LENGTH else f"{flat[: GOAL_LENGTH - 1].rstrip()}…"
