"""Load all agent definitions for a directory; the nearest definition of a name wins."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from deputy.agents.agent_files import DefinitionFolder, files_in, places, read_file, shipped_place
from deputy.agents.definition import AgentDefinition, DefinitionProblem


class ShadowedAgent(Struct, frozen=True):
    """A definition that is not used because a nearer one has the same name."""

    definition: AgentDefinition
    by: AgentDefinition


class AgentCatalog(Struct, frozen=True, kw_only=True):
    """The definitions, nearest first, and the problems of other files."""

    agents: tuple[AgentDefinition, ...] = ()
    shadowed: tuple[ShadowedAgent, ...] = ()
    problems: tuple[DefinitionProblem, ...] = ()
    folders: tuple[DefinitionFolder, ...] = ()
    """The folders that were searched."""

    def named(self, name: str) -> AgentDefinition | None:
        """The definition with this exact name."""
        return next((agent for agent in self.agents if agent.name == name), None)


def load_agents(start: Path, home: Path, *, with_shipped: bool = False) -> AgentCatalog:
    """Read the definitions of the project around `start`, of the home directory, and the shipped ones."""
    looked_in = places(Path(os.path.realpath(start)), Path(os.path.realpath(home)))
    if with_shipped:
        looked_in.append(shipped_place())
    agents: dict[str, AgentDefinition] = {}
    shadowed: list[ShadowedAgent] = []
    problems: list[DefinitionProblem] = []
    seen: set[str] = set()
    for place in looked_in:
        # A folder that a link names again is read once.
        if (identity := os.path.realpath(place.folder)) in seen:
            continue
        seen.add(identity)
        for file in files_in(place):
            match file if isinstance(file, DefinitionProblem) else read_file(file, place):
                case DefinitionProblem() as problem:
                    problems.append(problem)
                case AgentDefinition() as agent if agent.name in agents:
                    shadowed.append(ShadowedAgent(agent, agents[agent.name]))
                case AgentDefinition() as agent:
                    agents[agent.name] = agent
    return AgentCatalog(
        agents=tuple(agents.values()), shadowed=tuple(shadowed), problems=tuple(problems), folders=tuple(looked_in)
    )
