"""A tool that runs in the flow of its agent, with typed arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from deputy.engine.ports import ToolOutput
from deputy.tools.arguments import read_arguments, schema_of
from deputy.tools.struct_tool import described
from deputy.tools.tool_error import ToolError

if TYPE_CHECKING:
    from deputy.core.conversation import ToolCall
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.ports import RunContext

_Arguments = TypeVar("_Arguments", bound=Struct)


class StructFlowTool(ABC, Generic[_Arguments]):
    """A flow tool with an argument type; its description is the Markdown file of its name."""

    name: str
    arguments: type[_Arguments]

    @property
    def description(self) -> str:
        """The text of its Markdown file."""
        return described(f"{self.name.lower()}.md")

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        return schema_of(self.arguments)

    async def run(self, call: ToolCall, key: str, run: RunContext, agent: AgentContext) -> ToolOutput:
        """Execute the call; bad arguments become an error output."""
        try:
            wanted = read_arguments(call.arguments, self.arguments)
        except ToolError as error:
            return ToolOutput(text=str(error), is_error=True)
        return await self.execute(wanted, key, run, agent)

    @abstractmethod
    async def execute(self, wanted: _Arguments, key: str, run: RunContext, agent: AgentContext) -> ToolOutput:
        """Execute a call with valid arguments."""
