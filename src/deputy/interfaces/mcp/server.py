"""The MCP server: tools, resources, prompts and tasks, for old and new protocol versions, over any transport."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, ListToolsResult, Tool

from deputy import __version__
from deputy.core.errors import DeputyError, UsageError
from deputy.interfaces.mcp.resources import Resources
from deputy.interfaces.mcp.tasks import RunTasks, bind_tasks
from deputy.interfaces.mcp.tools import McpCall, refused, served_tools, words
from deputy.interfaces.safe_text import print_error
from deputy.interfaces.text_lines import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcp.server.context import CallNext, ServerRequestContext
    from mcp_types import CallToolRequestParams, PaginatedRequestParams

    from deputy.interfaces.mcp.server_state import ServerState
    from deputy.interfaces.mcp.tasks import TaskBook
    from deputy.interfaces.mcp.tools import Answer, ServedTool

NAME = "deputy"
_STATE_SECONDS = 3600.0


def make_server(
    server_state: ServerState, *, more: Sequence[ServedTool] = (), books: Sequence[TaskBook] = ()
) -> Server[Any]:
    """The server; more tools and tasks can be served beside its own."""
    tools = {tool.name: tool for tool in (*served_tools(), *more)}
    pages = Resources(server_state)

    async def list_tools(
        context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=[_listed(tool) for tool in tools.values()])

    async def call_tool(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> Answer:
        tool = tools.get(params.name)
        if tool is None:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {plain(params.name)!r:.80}")
        try:
            return await tool.execute(McpCall(server_state=server_state, context=context, params=params))
        except DeputyError as error:
            return refused(print_error(error))

    server: Server[Any] = Server(
        NAME,
        version=__version__,
        title="Deputy",
        description="Delegates work to subagents and returns their reports.",
        instructions=words("instructions"),
        get_tool_input_schema=lambda name: tools[name].schema if name in tools else None,
        on_list_tools=list_tools,
        on_list_resources=pages.resources,
        on_list_resource_templates=pages.templates,
        on_read_resource=pages.read,
        on_list_prompts=pages.prompts,
        on_get_prompt=pages.prompt,
    )
    # Registered by name: a call may become a task, which the constructor's types do not allow.
    server.add_request_handler("tools/call", _call_params(), call_tool)
    # The request state is sealed, so that a client cannot name the run of another client.
    server.middleware.append(
        RequestStateBoundary(RequestStateSecurity.ephemeral(ttl=_STATE_SECONDS), default_audience=NAME)
    )
    server.middleware.append(_as_protocol_errors)
    bind_tasks(server, (*books, RunTasks(server_state)))
    return server


async def _as_protocol_errors(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Answer:
    """Turn a DeputyError outside of a tool call into a protocol error."""
    try:
        return await call_next(ctx)
    except DeputyError as error:
        code = INVALID_PARAMS if isinstance(error, UsageError) else INTERNAL_ERROR
        raise MCPError(code=code, message=print_error(error)) from error


def _call_params() -> type[CallToolRequestParams]:
    from mcp_types import CallToolRequestParams

    return CallToolRequestParams


def _listed(tool: ServedTool) -> Tool:
    return Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description(),
        input_schema=tool.schema,
        output_schema=tool.output,
        annotations=tool.annotations,
    )
