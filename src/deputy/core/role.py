"""What a task takes over from an agent's definition: instructions, tools, model and limits."""

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
"""Tools that hand work on: an agent has them only where its definition names them."""
RUN_TOOL = "Run"
WRITING_TOOLS = frozenset({"Edit", "Write", RUN_TOOL})
"""Tools that change something: whoever has one works in a worktree of its own."""

Isolation: TypeAlias = Literal["worktree", "none"]


class Role(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent as its definition was when the work was handed over."""

    name: str
    prompt: str = ""
    tools: frozenset[str] | None = None
    """By the names they have here; None is whatever the caller has, but for handing work on."""
    withheld: frozenset[str] = frozenset()
    model: str | None = None
    is_recursive: bool = False
    max_turns: int | None = None
    seconds: float | None = None
    isolation: Isolation | None = None
    warnings: tuple[str, ...] = ()

    def granted(self, caller: Grant) -> frozenset[str]:
        """The tools it gets from this caller."""
        named = caller.tools - HANDING_ON if self.tools is None else self.tools & caller.tools
        return named - self.withheld

    def narrowed(self, reason: str) -> Role:
        """The same agent without what an untrusted definition must not bring about, and why."""
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
    """Why an agent of a name cannot be used, and what would be right."""

    reason: str


def as_parent(role: Role, all_tools: Grant) -> Grant:
    """What this agent has at the top of a tree, where it works for a person: who names no tools has all of them."""
    tools = all_tools.tools if role.tools is None else role.tools & all_tools.tools
    budget = all_tools.budget.narrowed(Budget(requests=role.max_turns))
    return structs.replace(all_tools, tools=tools - role.withheld, budget=budget)


def in_role(task: Task, role: Role, caller: Grant) -> Task:
    """The task as this agent does it; what the task says itself goes before what the definition says."""
    budget = task.budget.narrowed(Budget(requests=role.max_turns))
    return structs.replace(
        task,
        role=role,
        tools=tuple(sorted(role.granted(caller))) if task.tools is None else task.tools,
        model=task.model or role.model,
        timeout=role.seconds if task.timeout is None else task.timeout,
        isolation=task.isolation or role.isolation,
        # A cap above the caller's own would be refused as more than it has.
        budget=budget.narrowed(Budget(requests=caller.budget.requests)) if role.max_turns is not None else budget,
    )
