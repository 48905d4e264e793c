"""The Delegate tool for agents of smolagents, which are not async: each call opens a Deputy in a thread of its own."""

# The framework is not among the tools of development: `make test-frameworks` installs it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from smolagents import Tool

from deputy.client import Deputy
from deputy.integrations.delegate_call import DelegateFunction

if TYPE_CHECKING:
    from collections.abc import Collection


class DelegateTool(Tool):
    """The tool, for `ToolCallingAgent(tools=[…])` and `CodeAgent`; the options are those of Deputy."""

    name = DelegateFunction.name
    output_type = "string"
    skip_forward_signature_validation = True

    def __init__(self, model: str | None = None, *, allow: Collection[str] = (), **options: Any) -> None:
        """`allow` names tools of tasks beside the read-only ones."""
        self._open = lambda: Deputy(model, **options)
        self._allow = allow
        function = DelegateFunction(self._open(), allow)
        required = function.schema["required"]
        self.description = function.description
        self.inputs = {
            name: {"type": "any", "description": name, **said, **({} if name in required else {"nullable": True})}
            for name, said in function.schema["properties"].items()
        }
        super().__init__()

    def forward(self, **arguments: Any) -> str:
        """Run the tasks, and return their results."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._call(arguments)).result()

    async def _call(self, arguments: dict[str, Any]) -> str:
        given = {name: value for name, value in arguments.items() if value is not None}
        async with self._open() as deputy:
            return await DelegateFunction(deputy, self._allow)(**given)
