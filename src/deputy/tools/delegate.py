"""Delegate: the tool through which an agent hands work to subagents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import json

from deputy.core.approval import cost_ceiling, spawn_summary
from deputy.core.field_readers import FieldProblem
from deputy.core.progress import Progress
from deputy.core.results import results_form, results_markdown
from deputy.core.task import DELEGATE_SCHEMA, DelegateCall, read_call
from deputy.engine.fanout import fan_out
from deputy.engine.ports import ToolOutput, ToolTraits
from deputy.tools.typed import described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deputy.core.approval import Prices
    from deputy.core.conversation import ToolCall
    from deputy.core.task import Task
    from deputy.engine.desk import Desk
    from deputy.engine.ports import RunContext

_DENIED = "The person did not approve this. Nothing was started and nothing was spent."
_NOBODY = "Starting subagents needs approval, and nobody can be asked here. Nothing was started."


class DelegateTool:
    """One call, one approval, one result for every task in its order."""

    name = "Delegate"
    is_granted = True
    traits = ToolTraits(reads_only=False, repeatable=False, needs_approval=True, risk="medium")
    schema: dict[str, Any] = DELEGATE_SCHEMA

    def __init__(self, missing_key: Callable[[str], str | None], prices_of: Callable[[str], Prices]) -> None:
        self._missing_key = missing_key
        self._prices_of = prices_of

    @property
    def description(self) -> str:
        """What it does, with the advice for parents."""
        return described("delegate.md")

    async def run(self, call: ToolCall, key: str, run: RunContext, desk: Desk) -> ToolOutput:
        """Check the call, have it approved, and fan it out."""
        wanted = read_wanted(call.arguments)
        if not isinstance(wanted, DelegateCall):
            return _error("\n".join(f"{problem.field} {problem.message}." for problem in wanted))
        for model in dict.fromkeys(task.model or desk.asked for task in wanted.tasks):
            if (provider := self._missing_key(model)) is not None:
                return _error(f"Cannot spawn subagents: no API key for provider {provider}")
        refusal = await self._refusal(wanted, key, run, desk)
        if refusal:
            return _error(refusal)
        results = await fan_out(
            run, key, wanted.tasks, concurrency=wanted.concurrency, model=desk.asked, grant=desk.grant
        )
        if wanted.result_form == "json":
            return ToolOutput(text=json.encode(results_form(results)).decode())
        return ToolOutput(text=results_markdown(results))

    async def _refusal(self, wanted: DelegateCall, key: str, run: RunContext, desk: Desk) -> str:
        if desk.approval == "granted":
            return ""
        if desk.approval == "refuse":
            return _NOBODY
        question = spawn_summary(
            wanted.tasks,
            model=desk.asked,
            risk=self.traits.risk,
            cost=cost_ceiling(
                wanted.tasks, lambda task: self._prices_of(task.model or desk.asked), desk.purse.left("cost")
            ),
            concurrency=wanted.concurrency,
            redactor=desk.redactor,
        )
        desk.emit(Progress(event="waiting", label=desk.label, content=question))
        is_approved = json.decode(await run.recv(f"{key}:approval", "approval", question), type=bool)
        return "" if is_approved else _DENIED


def read_wanted(arguments: object) -> DelegateCall | tuple[FieldProblem, ...]:
    """The call that a model's arguments make, or every problem they have."""
    wanted = read_call(arguments)
    if not isinstance(wanted, DelegateCall):
        return wanted
    problems = [problem for index, task in enumerate(wanted.tasks) for problem in _problems(index, task)]
    return tuple(problems) or wanted


def _problems(index: int, task: Task) -> Iterator[FieldProblem]:
    if task.agent is not None:
        yield FieldProblem(
            f"tasks[{index}].agent", f"is {task.agent!r:.60}, and no agent of that name can be used here"
        )
    # Recursion is granted by an agent's definition, never by the model that calls.
    for name in ("Delegate", "Subtask"):
        if name in (task.tools or ()):
            yield FieldProblem(f"tasks[{index}].tools", f"names {name}, which only an agent's definition can grant")


def _error(text: str) -> ToolOutput:
    return ToolOutput(text=text, is_error=True)
