"""All the agents that can be called from a directory: the nearer definition of a name wins over the others."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from deputy.agents.definition import AgentDefinition, Problem
from deputy.agents.find import Place, files_in, places, read_file, shipped_place


class Shadowed(Struct, frozen=True):
    """A definition that is not used because a nearer one has its name."""

    definition: AgentDefinition
    by: AgentDefinition


class Catalogue(Struct, frozen=True, kw_only=True):
    """The definitions found, nearest first, and what stood in the way of others."""

    agents: tuple[AgentDefinition, ...] = ()
    shadowed: tuple[Shadowed, ...] = ()
    problems: tuple[Problem, ...] = ()
    places: tuple[Place, ...] = ()
    """Where it was looked."""

    def named(self, name: str) -> AgentDefinition | None:
        """The definition of an agent, by its exact name."""
        return next((agent for agent in self.agents if agent.name == name), None)


def load_agents(start: Path, home: Path, *, with_shipped: bool = False) -> Catalogue:
    """Read every definition that can be seen from `start` and from the home directory; last, those that are shipped."""
    looked_in = places(Path(os.path.realpath(start)), Path(os.path.realpath(home)))
    if with_shipped:
        looked_in.append(shipped_place())
    agents: dict[str, AgentDefinition] = {}
    shadowed: list[Shadowed] = []
    problems: list[Problem] = []
    seen: set[str] = set()
    for place in looked_in:
        # One folder under two names, by a link, is looked into once.
        if (identity := os.path.realpath(place.folder)) in seen:
            continue
        seen.add(identity)
        for file in files_in(place):
            match file if isinstance(file, Problem) else read_file(file, place):
                case Problem() as problem:
                    problems.append(problem)
                case AgentDefinition() as agent if agent.name in agents:
                    shadowed.append(Shadowed(agent, agents[agent.name]))
                case AgentDefinition() as agent:
                    agents[agent.name] = agent
    return Catalogue(
        agents=tuple(agents.values()), shadowed=tuple(shadowed), problems=tuple(problems), places=tuple(looked_in)
    )
