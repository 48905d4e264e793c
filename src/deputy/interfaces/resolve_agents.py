"""Resolve what tasks name: agent definitions, tools and schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from deputy.core.contract import schema_of
from deputy.core.errors import UsageError
from deputy.core.request import ALWAYS_GRANTED, READ_ONLY_TOOLS
from deputy.core.task import DELEGATE, NoRole, Role, in_role
from deputy.interfaces.validation import check_task, check_tools
from deputy.tools.mcp_servers import PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.agents.workspace_agents import WorkspaceAgents
    from deputy.core.request import Grant
    from deputy.core.task import Task
    from deputy.tools.mcp_servers import McpServers


class AgentResolver:
    """Resolves the names in tasks; an unknown name is a UsageError before anything is spent."""

    def __init__(
        self,
        agents: WorkspaceAgents,
        servers: McpServers,
        *,
        grant: Grant,
        own: frozenset[str],
        every: frozenset[str],
        known: frozenset[str],
    ) -> None:
        self._agents = agents
        self._servers = servers
        self._grant = grant
        """The caller's grant."""
        self._own = own
        """The program's own tools."""
        self._all = every
        self._known = known

    async def prepare(self, tasks: Sequence[Task]) -> tuple[tuple[Task, ...], dict[str, bool]]:
        """The tasks as data, and their tools of MCP servers, each with whether it only reads."""
        named, more = await self._with_servers([self._prepared(index, task) for index, task in enumerate(tasks)])
        for index, task in enumerate(named):
            check_task(task, f"tasks[{index}]")
        return await self.resolve(named), more

    async def resolve(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """The tasks with the tools, models and limits of the agents they name."""
        return tuple([await self._resolved(index, task) for index, task in enumerate(tasks)])

    async def _with_servers(self, tasks: Sequence[Task]) -> tuple[tuple[Task, ...], dict[str, bool]]:
        """Expand the MCP servers in the tasks' tools; also return those tools, each with whether it only reads."""
        known: dict[str, bool] = {}
        named: list[Task] = []
        for task in tasks:
            found = await self._servers.named(task.tools or ())
            others = [name for name in task.tools or () if not name.startswith(PREFIX)]
            named.append(structs.replace(task, tools=(*others, *found)) if found else task)
            known |= found
        return tuple(named), known

    async def _resolved(self, index: int, task: Task) -> Task:
        # The tools of MCP servers are resolved by the servers.
        named = [name for name in task.tools or () if not name.startswith(PREFIX)]
        check_tools(named, self._known, f"tasks[{index}].tools")
        role = task.role or await self.role(task.agent, f"tasks[{index}].agent")
        if DELEGATE in named and (role is None or DELEGATE not in role.granted(self._grant)):
            expected = "only an agent's definition grants it: name an agent that has it"
            raise UsageError(f"tasks[{index}].tools", DELEGATE, expected)
        return task if role is None or task.role is not None else in_role(task, role, self._grant)

    async def role(self, name: str | None, field: str) -> Role | None:
        """The definition of an agent; UsageError if it is unknown."""
        if name is None:
            return None
        match await self._agents.find(name):
            case NoRole(reason=reason):
                raise UsageError(field, name, reason)
            case Role() as role:
                return role

    async def named(self, tools: Sequence[str]) -> frozenset[str]:
        """These tools, with those of the MCP servers among them; UsageError if one is unknown or not granted."""
        own = [name for name in tools if not name.startswith(PREFIX)]
        check_tools(own, self._known, "tools")
        served = await self._servers.named(tools)
        names = frozenset(own) | frozenset(served)
        if beyond := names - self._grant.tools - self.allowed(served) - ALWAYS_GRANTED:
            raise UsageError("tools", min(beyond), "this Deputy may not grant it; see `allow`")
        return names

    def allowed(self, more: dict[str, bool]) -> frozenset[str]:
        """The tools of MCP servers that the caller may grant: those that only read, or all if it has every tool."""
        return frozenset(name for name, reads in more.items() if reads or self._grant.tools >= self._all)

    def _prepared(self, index: int, task: Task) -> Task:
        """The task with its schema as JSON, and with the program's own tools unless it names tools."""
        schema = None if task.schema is None else _schema(task.schema, f"tasks[{index}]")
        tools = tuple(sorted(READ_ONLY_TOOLS | self._own)) if self._names_none(task) else task.tools
        return structs.replace(task, schema=schema, tools=tools)

    def _names_none(self, task: Task) -> bool:
        """Whether neither the task nor an agent names tools."""
        return bool(self._own) and task.tools is None and task.agent is None


def _schema(source: object, where: str) -> Any:
    try:
        return schema_of(source).form
    except UsageError as error:
        raise UsageError(f"{where}.{error.field}", error.found, error.expected) from error
