"""Subtask: have parts of a task done as subtasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deputy.core.subtask.subtask_request import SUBTASK_SCHEMA, read_continuation
from deputy.core.tool_arguments import short_schema
from deputy.engine.ports import ToolOutput, ToolTraits
from deputy.engine.subtasks import answer
from deputy.tools.struct_tool import described

if TYPE_CHECKING:
    from deputy.core.conversation import ToolCall
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.ports import RunContext

_FOR_PROGRAMS = ("subtype", "max_depth", "template_hints", "accumulation_format")


class SubtaskTool:
    """One call is one continuation: the task continues when its subtasks have ended."""

    name = "Subtask"
    is_granted = True
    traits = ToolTraits(reads_only=False, repeatable=False, needs_approval=True, risk="medium")
    schema: dict[str, Any] = short_schema(SUBTASK_SCHEMA, _FOR_PROGRAMS)

    @property
    def description(self) -> str:
        """The text of `subtask.md`."""
        return described(self.name)

    async def run(self, call: ToolCall, key: str, run: RunContext, agent: AgentContext) -> ToolOutput:
        """Run the subtasks and return their results as JSON."""
        given = await answer(run, key, read_continuation(call.arguments), agent)
        return ToolOutput(text=given.text, is_error=given.is_refusal)
