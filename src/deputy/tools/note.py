"""Note: write a finding into the journal and the scratchpad, where it survives the subagent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from deputy.core.events import Noted
from deputy.core.progress import Progress
from deputy.engine.ports import Files, ToolOutput, ToolTraits
from deputy.tools.struct_tool import Arguments, StructFlowTool

if TYPE_CHECKING:
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.ports import RunContext


class _NoteArguments(Arguments, frozen=True):
    content: Annotated[str, Meta(min_length=1, max_length=20_000, description="The finding, complete in itself.")]


class NoteTool(StructFlowTool[_NoteArguments]):
    """Records findings; only subagents have it."""

    name = "Note"
    is_granted = False
    arguments = _NoteArguments
    traits = ToolTraits(reads_only=True, repeatable=True, is_local=True, needs_approval=False, risk="low")

    def __init__(self, files: Files) -> None:
        self._files = files

    async def execute(self, wanted: _NoteArguments, key: str, run: RunContext, agent: AgentContext) -> ToolOutput:
        """Record the finding."""
        await run.step(f"{key}:noted", _note, self._files, run.state.scratchpad, wanted.content)
        agent.emit(Progress(event="note", label=agent.label, content=wanted.content))
        return ToolOutput(text="Noted.", is_our_own=True)


async def _note(files: Files, scratchpad: str, content: str) -> Noted:
    await files.note(scratchpad, content)
    return Noted(content=content)
