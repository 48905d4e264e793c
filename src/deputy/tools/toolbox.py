"""The tools of one agent, limited to its grant."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from deputy.core.request import ALWAYS_GRANTED
from deputy.core.task import DELEGATING_TOOLS, WRITING_TOOLS
from deputy.engine.ports import ToolOutput
from deputy.engine.timeouts import SharedTimer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from deputy.core.request import Grant
    from deputy.engine.ports import Tool, ToolContext
    from deputy.processes.child_process import Slots
    from deputy.tools.workspace import Workspace

_GRACE_SECONDS = 5
"""Extra time for a tool that enforces its own limit to return what it has."""


class Toolbox:
    """Tools limited to a grant. Not advertising a tool is no permission check: `run` checks again."""

    def __init__(
        self,
        tools: Iterable[Tool],
        grant: Grant,
        seconds: Mapping[str, float] | None = None,
        timer: SharedTimer | None = None,
        changed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`changed` is called after a tool that may have changed files, before its result counts."""
        self._seconds = seconds or {}
        """Time limits that override those of the tools."""
        self._timer = timer or SharedTimer()
        self._changed = changed
        allowed = grant.tools | ALWAYS_GRANTED
        every = {tool.name: tool for tool in tools}
        self._granted = {name: tool for name, tool in every.items() if name in allowed}
        self._withheld = (every.keys() | DELEGATING_TOOLS) - self._granted.keys()

    def definitions(self) -> tuple[Tool, ...]:
        """The granted tools that models may choose from, in order."""
        return tuple(tool for tool in self._granted.values() if tool.traits.is_offered)

    def find(self, name: str) -> Tool | None:
        """The granted tool of this name, if any."""
        return self._granted.get(name)

    async def run(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run a granted tool within its time limit; any other name is refused."""
        tool = self.find(name)
        if tool is None:
            return self._refusal(name, context.held)
        limit = self._seconds.get(name, tool.traits.limit_seconds)
        output = await self._within(tool, arguments, context, limit)
        if self._changed is not None and name in WRITING_TOOLS:
            await self._changed()
        return output

    async def _within(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext, limit: float) -> ToolOutput:
        name = tool.name
        try:
            async with self._timer.timeout(limit + _GRACE_SECONDS):
                return await tool.run(arguments, context)
        except TimeoutError:
            text = f"{name} was stopped after its limit of {limit:g} s."
            return ToolOutput(text=text, is_error=True, is_our_own=True)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Our task was not cancelled, so something inside the tool was.
            text = f"{name} failed: an operation that it waited for was cancelled."
            return ToolOutput(text=text, is_error=True, is_our_own=True)

    def _refusal(self, name: str, held: Sequence[str]) -> ToolOutput:
        reason = "is not granted" if name in self._withheld else "does not exist"
        known = ", ".join(held or self._granted) or "none"
        return ToolOutput(text=f"The tool {name!r:.80} {reason}; nothing was run. Your tools: {known}.", is_error=True)


def standard_tools(
    workspace: Workspace,
    environment: Mapping[str, str],
    *,
    slots: Slots | None = None,
    run_seconds: float | None = None,
    is_sandboxed: bool = False,
) -> tuple[Tool, ...]:
    """All tools over a workspace; all agents of a process share the slots. With a sandbox, Run uses it."""
    from deputy.tools.edit import edit_tool
    from deputy.tools.glob import glob_tool
    from deputy.tools.grep import grep_tool
    from deputy.tools.read import read_tool
    from deputy.tools.run import LIMIT_SECONDS, run_tool
    from deputy.tools.web_fetch import web_fetch_tool
    from deputy.tools.web_search import choose_provider, web_search_tool
    from deputy.tools.write import write_tool

    return (
        read_tool(workspace),
        grep_tool(workspace, slots),
        glob_tool(workspace, slots),
        web_fetch_tool(slots=slots),
        web_search_tool(choose_provider(environment)),
        edit_tool(workspace),
        write_tool(workspace),
        run_tool(
            workspace,
            environment,
            limit_seconds=LIMIT_SECONDS if run_seconds is None else run_seconds,
            is_sandboxed=is_sandboxed,
        ),
    )
