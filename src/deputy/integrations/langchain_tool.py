"""The Delegate tool for agents of LangChain and LangGraph."""

# The framework is not among the tools of development: `make test-frameworks` installs it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.tools import StructuredTool

from deputy.integrations.delegate_call import DelegateFunction

if TYPE_CHECKING:
    from collections.abc import Collection

    from deputy.client import Deputy


def delegate_tool(deputy: Deputy, *, allow: Collection[str] = ()) -> StructuredTool:
    """The tool, for `create_agent(tools=[…])` and `ToolNode` of async agents.

    `allow` names tools beside the read-only ones.
    """
    function = DelegateFunction(deputy, allow)
    return StructuredTool(
        name=function.name,
        description=function.description,
        args_schema=function.schema,
        coroutine=function.__call__,
    )
