"""The Delegate tool for agents of the OpenAI Agents SDK."""

# The framework is not among the tools of development: `make test-frameworks` installs it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents import FunctionTool
from deputy.backends.cli.program import json_object
from deputy.integrations.delegate_call import DelegateFunction

if TYPE_CHECKING:
    from collections.abc import Collection

    from deputy.client import Deputy


def delegate_tool(deputy: Deputy, *, allow: Collection[str] = ()) -> FunctionTool:
    """The tool, for `Agent(tools=[…])`; `allow` names tools beside the read-only ones."""
    function = DelegateFunction(deputy, allow)

    async def invoke(_context: Any, arguments: str) -> str:
        given = json_object(arguments.encode())
        return "The arguments are not a JSON object; nothing was run." if given is None else await function(**given)

    return FunctionTool(
        name=function.name,
        description=function.description,
        params_json_schema=function.schema,
        on_invoke_tool=invoke,
        # Most fields of a task are optional, which the strict mode does not know.
        strict_json_schema=False,
    )
