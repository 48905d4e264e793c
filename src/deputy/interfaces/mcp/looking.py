"""Detect and Agents: what there is to delegate, and to whom. Nothing is run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import convert

from deputy.interfaces.mcp.call import refused, told_as_json
from deputy.interfaces.mcp.outputs import FoundRequests, ListedAgents
from deputy.interfaces.mcp.schemas import MOST_TEXT

if TYPE_CHECKING:
    from deputy.interfaces.mcp.call import Answer, Call


async def detect(call: Call) -> Answer:
    """Show the requests for delegation that a text holds."""
    text = call.arguments.get("text")
    if not isinstance(text, str) or len(text) > MOST_TEXT or call.arguments.keys() != {"text"}:
        return refused(f"Give `text` alone, a text of at most {MOST_TEXT:,} characters.")
    return told_as_json(await asyncio.to_thread(_requests, text, str(call.hub.options.workspace)))


def _requests(text: str, directory: str) -> FoundRequests:
    from deputy.config import load_tables
    from deputy.core.text import LIMIT_REQUESTS, request_json
    from deputy.core.text import detect as find

    found = find(text, load_tables(directory), limit=LIMIT_REQUESTS)
    return FoundRequests(requests=tuple(map(request_json, found)))


async def agents(call: Call) -> Answer:
    """List the agent definitions that are found."""
    if call.arguments:
        return refused("Agents takes no arguments.")
    return told_as_json(await asyncio.to_thread(_agents, call))


def _agents(call: Call) -> ListedAgents:
    from deputy.agents.catalogue import load_agents
    from deputy.interfaces.cli.agents import catalogue_form, home

    return convert(catalogue_form(load_agents(call.hub.options.workspace.absolute(), home())), ListedAgents)
