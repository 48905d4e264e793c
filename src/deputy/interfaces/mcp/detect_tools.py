"""The tools Detect and Agents; they run nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import convert

from deputy.interfaces.mcp.outputs import FoundRequests, ListedAgents
from deputy.interfaces.mcp.tool_call import json_result, refused
from deputy.interfaces.mcp.tool_schemas import MOST_TEXT

if TYPE_CHECKING:
    from deputy.interfaces.mcp.tool_call import Answer, McpCall


async def detect(call: McpCall) -> Answer:
    """List the delegation requests in a text."""
    text = call.arguments.get("text")
    if not isinstance(text, str) or len(text) > MOST_TEXT or call.arguments.keys() != {"text"}:
        return refused(f"Give `text` alone, a text of at most {MOST_TEXT:,} characters.")
    return json_result(await asyncio.to_thread(_requests, text, str(call.server_state.options.workspace)))


def _requests(text: str, directory: str) -> FoundRequests:
    from deputy.config import load_tables
    from deputy.core.detect import LIMIT_REQUESTS, request_json
    from deputy.core.detect import detect as find

    found = find(text, load_tables(directory), limit=LIMIT_REQUESTS)
    return FoundRequests(requests=tuple(map(request_json, found)))


async def agents(call: McpCall) -> Answer:
    """List the agent definitions."""
    if call.arguments:
        return refused("Agents takes no arguments.")
    return json_result(await asyncio.to_thread(_agents, call))


def _agents(call: McpCall) -> ListedAgents:
    from deputy.agents.agent_files import load_agents
    from deputy.interfaces.cli.commands.agents import catalog_dict, home

    return convert(catalog_dict(load_agents(call.server_state.options.workspace.absolute(), home())), ListedAgents)
