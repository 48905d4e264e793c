"""The tools of the server: names, descriptions, schemas and functions."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_types import ToolAnnotations

from deputy.core.task import DELEGATE_SCHEMA
from deputy.interfaces.mcp import tool_schemas
from deputy.interfaces.mcp.outputs import DelegateResults, FoundRequests, ListedAgents, RunStatusOutput, output_schema
from deputy.interfaces.mcp.tool_call import ServedTool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Struct

    from deputy.interfaces.mcp.tool_call import Answer, McpCall

_TOOLS = Path(__file__).parents[2] / "tools"
_READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
_SPENDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True)
_STOPS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def served_tools() -> tuple[ServedTool, ...]:
    """All tools of the server."""
    results, status = (DelegateResults,), (RunStatusOutput,)
    return (
        _tool(
            "Delegate",
            "Delegate work to subagents",
            "delegate_tools.delegate",
            DELEGATE_SCHEMA,
            _SPENDS,
            (DelegateResults,),
        ),
        _tool(
            "DelegateStart",
            "Start subagents without waiting",
            "delegate_tools.start",
            tool_schemas.START,
            _SPENDS,
            status,
        ),
        _tool("DelegateStatus", "Status of started subagents", "run_tools.status", tool_schemas.RUN, _READS, status),
        _tool(
            "DelegateResult",
            "Results of started subagents",
            "run_tools.result",
            tool_schemas.RESULT,
            _READS,
            (*results, *status),
        ),
        _tool("DelegateCancel", "Cancel subagents", "run_tools.cancel", tool_schemas.RUN, _STOPS, status),
        _tool("DelegateResume", "Resume subagents", "resume_tool.resume", tool_schemas.RESUME, _SPENDS, status),
        _tool(
            "Detect",
            "Delegation requests in a text",
            "detect_tools.detect",
            tool_schemas.DETECT,
            _READS,
            (FoundRequests,),
        ),
        _tool(
            "Agents",
            "Agent definitions",
            "detect_tools.agents",
            tool_schemas.AGENTS,
            _READS,
            (ListedAgents,),
        ),
    )


def words(name: str) -> str:
    """The text of a description file."""
    return Path(__file__).with_name("descriptions").joinpath(f"{name}.md").read_text("utf-8").strip()


def delegate_advice() -> str:
    """The advice for parent agents: the description of the Delegate tool."""
    return _TOOLS.joinpath("delegate.md").read_text("utf-8").strip()


def _tool(
    name: str,
    title: str,
    place: str,
    schema: dict[str, Any],
    annotations: ToolAnnotations,
    output: Sequence[type[Struct]],
) -> ServedTool:
    module, _, function = place.partition(".")

    async def execute(call: McpCall) -> Answer:
        # Imported on the first call, so that listing tools stays fast.
        return await getattr(import_module(f"deputy.interfaces.mcp.{module}"), function)(call)

    def described() -> str:
        return f"{delegate_advice()}\n\n{words(name)}" if name == "Delegate" else words(name)

    return ServedTool(
        name=name,
        title=title,
        description=described,
        schema=schema,
        execute=execute,
        output=output_schema(output),
        annotations=annotations.model_copy(update={"title": title}),
    )
