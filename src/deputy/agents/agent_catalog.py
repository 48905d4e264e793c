"""All the agents that can be called from a directory: the nearer definition of a name wins over the others."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from deputy.agents.agent_files import DefinitionFolder, files_in, places, read_file, shipped_place
from deputy.agents.definition import AgentDefinition, DefinitionProblem


class ShadowedAgent(Struct, frozen=True):
    """A definition that is not used because a nearer one has its name."""

    definition: AgentDefinition
    by: AgentDefinition


class AgentCatalog(Struct, frozen=True, kw_only=True):
    """The definitions found, nearest first, and what stood in the way of others."""

    agents: tuple[AgentDefinition, ...] = ()
    shadowed: tuple[ShadowedAgent, ...] = ()
    problems: tuple[DefinitionProblem, ...] = ()
    folders: tuple[DefinitionFolder, ...] = ()
    """Where it was looked."""

    def named(self, name: str) -> AgentDefinition | None:
        """The definition of an agent, by its exact name."""
        return next((agent for agent in self.agents if agent.name == name), None)


def load_agents(start: Path, home: Path, *, with_shipped: bool = False) -> AgentCatalog:
    """Read every definition that can be seen from `start` and from the home directory; last, those that are shipped."""
    looked_in = places(Path(os.path.realpath(start)), Path(os.path.realpath(home)))
    if with_shipped:
        looked_in.append(shipped_place())
    agents: dict[str, AgentDefinition] = {}
    shadowed: list[ShadowedAgent] = []
    problems: list[DefinitionProblem] = []
    seen: set[str] = set()
    for place in looked_in:
        # One folder under two names, by a link, is looked into once.
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
