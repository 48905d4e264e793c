"""The agents of a workspace, and whether the user trusts the project."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from deputy.core.fallback import FUNCTION
from deputy.core.request import READ_ONLY_TOOLS
from deputy.core.task import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from deputy.agents.agent_files import AgentCatalog
    from deputy.core.task import NoRole


class WorkspaceAgents:
    """The agents of a workspace; definitions are read again for every lookup."""

    def __init__(
        self,
        workspace: Path,
        usable_model: Callable[[str], str | None],
        *,
        trusts_project: bool,
        own_tools: Collection[str] = (),
        functions: Collection[str] = (),
    ) -> None:
        self._functions = functions
        """The names of the program's own functions, which come before definitions."""
        self._workspace = workspace
        self._usable_model = usable_model
        self._trusts_project = trusts_project
        self._own_tools = own_tools

    def names(self) -> Sequence[str]:
        """The names of the agents."""
        from deputy.agents.resolve_role import names_in

        return tuple(dict.fromkeys((*self._functions, *names_in(self._catalogue()))))

    async def find(self, name: str) -> Role | NoRole:
        """The role of an agent, or why it cannot be used."""
        from deputy.agents.resolve_role import find_role

        if name in self._functions:
            # It works with the program's own rights, so tools that write would only ask for approval in vain.
            return Role(name=name, model=f"{FUNCTION}{name}", tools=READ_ONLY_TOOLS)
        catalogue = await asyncio.to_thread(self._catalogue)
        return find_role(
            catalogue,
            name,
            self._usable_model,
            trusts_project=self._trusts_project,
            own_tools=self._own_tools,
        )

    def _catalogue(self) -> AgentCatalog:
        from deputy.agents.agent_files import load_agents

        return load_agents(self._workspace, Path.home(), with_shipped=True)


def is_trusted(workspace: Path, trusted: Sequence[str]) -> bool:
    """Whether the project is in one of the trusted folders."""
    real = Path(os.path.realpath(workspace))
    return any(real.is_relative_to(os.path.realpath(Path(folder).expanduser())) for folder in trusted if folder)
