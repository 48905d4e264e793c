"""Ask: put a question to a person; the run's clock is paused until the answer arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from deputy.core.events import ANSWER
from deputy.core.messages import UNANSWERED_CALL
from deputy.core.progress import Progress
from deputy.engine.ports import ToolOutput, ToolTraits
from deputy.tools.struct_tool import Arguments, StructFlowTool

if TYPE_CHECKING:
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.ports import RunContext


class _AskArguments(Arguments, frozen=True):
    question: Annotated[str, Meta(min_length=1, max_length=4000, description="The question, and your default.")]


class AskTool(StructFlowTool[_AskArguments]):
    """Waits for an answer. Without an interface that can answer, the loop ends as blocked instead."""

    name = "Ask"
    is_granted = False
    arguments = _AskArguments
    traits = ToolTraits(reads_only=False, repeatable=True, needs_approval=False, risk="low")

    async def execute(self, wanted: _AskArguments, key: str, run: RunContext, agent: AgentContext) -> ToolOutput:
        """Wait for the answer and return it."""
        agent.emit(Progress(event="waiting", label=agent.label, content=wanted.question))
        answer = await run.ask(f"{key}:{ANSWER}", wanted.question)
        return (
            ToolOutput(text=UNANSWERED_CALL, is_error=True)
            if answer is None
            else ToolOutput(text=answer, is_our_own=True)
        )
