"""The tools of the server: names, descriptions, schemas and functions; a call of one, and its result."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from mcp_types import CallToolResult, TextContent, ToolAnnotations
from msgspec import Struct, convert, json, to_builtins

from deputy.core.errors import DeputyError
from deputy.core.task import DelegateArguments, StartArguments
from deputy.core.tool_arguments import arguments_schema, read_arguments
from deputy.interfaces.mcp import tool_shapes as shapes
from deputy.interfaces.text_lines import outgoing_json, plain, plain_data

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from mcp.server.context import HandlerResult, ServerRequestContext
    from mcp_types import CallToolRequestParams

    from deputy.core.field_readers import FieldProblem
    from deputy.interfaces.mcp.server_state import ServerState

    Answer: TypeAlias = HandlerResult

_Arguments = TypeVar("_Arguments", bound=Struct)
_TOOLS = Path(__file__).parents[2] / "tools"
_READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
_SPENDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True)
_STOPS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class McpCall:
    """A tool call of a client."""

    server_state: ServerState
    context: ServerRequestContext[Any, Any]
    params: CallToolRequestParams

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the call."""
        return self.params.arguments or {}

    def read(self, kind: type[_Arguments]) -> _Arguments:
        """The arguments as a struct; the error of bad ones names every problem."""
        problems: list[FieldProblem] = []
        found = read_arguments(kind, self.arguments, problems)
        if found is None:
            raise DeputyError(problem_text(problems))
        return found


def problem_text(problems: Iterable[FieldProblem]) -> str:
    """Every problem of a call's arguments, one per line."""
    return "\n".join(f"{problem.field} {problem.message}." for problem in problems)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedTool:
    """A tool that clients can call."""

    name: str
    title: str
    description: Callable[[], str]
    schema: dict[str, Any]
    execute: Callable[[McpCall], Awaitable[Answer]]
    output: dict[str, Any] | None = None
    annotations: ToolAnnotations = field(default_factory=ToolAnnotations)


def served_tools() -> tuple[ServedTool, ...]:
    """All tools of the server."""
    results, status = shapes.DelegateResults, shapes.RunStatusOutput
    return (
        _tool("Delegate", "Delegate work to subagents", "delegate_tools.delegate", DelegateArguments, _SPENDS, results),
        _tool(
            "DelegateStart", "Start subagents without waiting", "delegate_tools.start", StartArguments, _SPENDS, status
        ),
        _tool("DelegateStatus", "Status of started subagents", "run_tools.status", shapes.RunArguments, _READS, status),
        _tool(
            "DelegateResult",
            "Results of started subagents",
            "run_tools.result",
            shapes.ResultArguments,
            _READS,
            results,
            status,
        ),
        _tool("DelegateCancel", "Cancel subagents", "run_tools.cancel", shapes.RunArguments, _STOPS, status),
        _tool("DelegateResume", "Resume subagents", "run_tools.resume", shapes.ResumeArguments, _SPENDS, status),
        _tool(
            "Detect",
            "Delegation requests in a text",
            "tools.detect",
            shapes.DetectArguments,
            _READS,
            shapes.FoundRequests,
        ),
        _tool("Agents", "Agent definitions", "tools.agents", shapes.NoArguments, _READS, shapes.ListedAgents),
    )


def _tool(
    name: str,
    title: str,
    function: str,
    arguments: type[Struct],
    annotations: ToolAnnotations,
    *results: type[Struct],
) -> ServedTool:
    module, _, attribute = function.partition(".")

    async def execute(call: McpCall) -> Answer:
        # Imported on the first call, so that listing tools stays fast.
        return await getattr(import_module(f"deputy.interfaces.mcp.{module}"), attribute)(call)

    def described() -> str:
        return f"{delegate_advice()}\n\n{words(name)}" if name == "Delegate" else words(name)

    return ServedTool(
        name=name,
        title=title,
        description=described,
        schema=arguments_schema(arguments),
        execute=execute,
        output=shapes.output_schema(results),
        annotations=annotations.model_copy(update={"title": title}),
    )


def words(name: str) -> str:
    """The text of a description file."""
    return Path(__file__).with_name("descriptions").joinpath(f"{name}.md").read_text("utf-8").strip()


def delegate_advice() -> str:
    """The advice for parent agents: the description of the Delegate tool."""
    return _TOOLS.joinpath("delegate.md").read_text("utf-8").strip()


# --- results ----------------------------------------------------------------------------------------------------------


def tool_result(text: str, form: Any = None) -> CallToolResult:
    """A result: text for a model, safe to print, and optionally structured data."""
    return _answer(plain(text), None if form is None else outgoing_json(plain_data(to_builtins(form))))


def json_result(form: Any, *, indent: int = 2) -> CallToolResult:
    """A result whose text is the JSON of its data."""
    data = outgoing_json(plain_data(to_builtins(form)), indent=indent)
    return _answer(data.decode(), data)


def _answer(text: str, data: bytes | None) -> CallToolResult:
    form = None if data is None else json.decode(data)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=form)


def refused(text: str) -> CallToolResult:
    """A result that says why the call was refused."""
    return as_error(tool_result(text))


def as_error(answer: CallToolResult) -> CallToolResult:
    """The same result, marked as an error."""
    return answer.model_copy(update={"is_error": True})


# --- Detect and Agents ------------------------------------------------------------------------------------------------


async def detect(call: McpCall) -> Answer:
    """List the delegation requests in a text."""
    text = call.read(shapes.DetectArguments).text
    return json_result(await asyncio.to_thread(_requests, text, str(call.server_state.options.workspace)))


def _requests(text: str, directory: str) -> shapes.FoundRequests:
    from deputy.config import load_tables
    from deputy.core.detect import LIMIT_REQUESTS, request_json
    from deputy.core.detect import detect as find

    found = find(text, load_tables(directory), limit=LIMIT_REQUESTS)
    return shapes.FoundRequests(requests=tuple(map(request_json, found)))


async def agents(call: McpCall) -> Answer:
    """List the agent definitions."""
    call.read(shapes.NoArguments)
    return json_result(await asyncio.to_thread(_agents, call))


def _agents(call: McpCall) -> shapes.ListedAgents:
    from deputy.agents.agent_files import load_agents
    from deputy.interfaces.cli.commands.agents import catalog_dict, home

    return convert(
        catalog_dict(load_agents(call.server_state.options.workspace.absolute(), home())), shapes.ListedAgents
    )
