"""The Delegate tool for agents of pydantic-ai."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_ai import Tool

from deputy.integrations.delegate_call import DelegateFunction

if TYPE_CHECKING:
    from collections.abc import Collection

    from deputy.client import Deputy


def delegate_tool(deputy: Deputy, *, allow: Collection[str] = ()) -> Tool[Any]:
    """The tool, for `Agent(tools=[…])`; `allow` names tools beside the read-only ones."""
    function = DelegateFunction(deputy, allow)
    return Tool[Any].from_schema(
        function.__call__, name=function.name, description=function.description, json_schema=function.schema
    )
