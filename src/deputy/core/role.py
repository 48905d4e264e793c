"""The role of a task: instructions, tools, model and limits of an agent definition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, structs

from deputy.core.limits import Budget
from deputy.core.request import READ_ONLY_TOOLS

if TYPE_CHECKING:
    from deputy.core.request import Grant
    from deputy.core.task import Task

DELEGATE = "Delegate"
HANDING_ON = frozenset({DELEGATE, "Subtask"})
"""Tools that delegate; an agent has them only if its definition names them."""
RUN_TOOL = "Run"
WRITING_TOOLS = frozenset({"Edit", "Write", RUN_TOOL})
"""Tools that change something: a run with one of them works in its own worktree."""
ALL_TOOLS = READ_ONLY_TOOLS | WRITING_TOOLS | HANDING_ON

Isolation: TypeAlias = Literal["worktree", "none"]


class Role(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent definition at the time of the delegation."""

    name: str
    prompt: str = ""
    tools: frozenset[str] | None = None
    """By their names here; None means the caller's tools without those that delegate."""
    withheld: frozenset[str] = frozenset()
    model: str | None = None
    is_recursive: bool = False
    max_turns: int | None = None
    seconds: float | None = None
    isolation: Isolation | None = None
    warnings: tuple[str, ...] = ()

    def granted(self, caller: Grant) -> frozenset[str]:
        """The tools that it gets from this caller."""
        named = caller.tools - HANDING_ON if self.tools is None else self.tools & caller.tools
        return named - self.withheld

    def narrowed(self, reason: str) -> Role:
        """The agent without the permissions that an untrusted definition must not have, and a warning."""
        tools = READ_ONLY_TOOLS if self.tools is None else self.tools & READ_ONLY_TOOLS
        is_less = self.tools is None or tools != self.tools or self.is_recursive or self.isolation == "none"
        return structs.replace(
            self,
            tools=tools,
            is_recursive=False,
            isolation=None,
            warnings=(*self.warnings, reason) if is_less else self.warnings,
        )


class NoRole(Struct, frozen=True, kw_only=True):
    """Why an agent cannot be used, and which names are valid."""

    reason: str


def as_parent(role: Role, all_tools: Grant) -> Grant:
    """The grant of this agent as the parent agent; without named tools it has all of them."""
    tools = all_tools.tools if role.tools is None else role.tools & all_tools.tools
    budget = all_tools.budget.narrowed(Budget(requests=role.max_turns))
    return structs.replace(all_tools, tools=tools - role.withheld, budget=budget)


def in_role(task: Task, role: Role, caller: Grant) -> Task:
    """The task with this agent's role; the task's own fields win over the definition."""
    budget = task.budget.narrowed(Budget(requests=role.max_turns))
    return structs.replace(
        task,
        role=role,
        tools=tuple(sorted(role.granted(caller))) if task.tools is None else task.tools,
        model=task.model or role.model,
        timeout=role.seconds if task.timeout is None else task.timeout,
        isolation=task.isolation or role.isolation,
        # The guard would refuse a cap above the caller's own.
        budget=budget.narrowed(Budget(requests=caller.budget.requests)) if role.max_turns is not None else budget,
    )
