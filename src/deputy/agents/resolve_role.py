"""From an agent definition to the role that a task takes on, in words that tools and models have here."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from deputy.agents.tool_names import name_of, withheld_by
from deputy.core.role import NoRole, Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.agents.agent_catalog import AgentCatalog
    from deputy.agents.definition import AgentDefinition

LISTED = 40
_NEAR = 3
_SHOWN = 64

_UNTRUSTED = (
    "The definition of {name} is the project's own, so it only reads here; "
    "to let it do more, name the project under agents.trusted in your own configuration."
)


def find_role(
    catalogue: AgentCatalog, name: str, usable_model: Callable[[str], str | None], *, trusts_project: bool
) -> Role | NoRole:
    """The role of this name; `usable_model` gives the name of a model here that a spelling stands for."""
    definition = catalogue.named(name)
    if definition is None:
        return NoRole(reason=_near(catalogue, name) or _unknown(catalogue))
    if definition.disabled:
        return NoRole(reason=f"its definition in {definition.path} disables it")
    role = role_of(definition, usable_model)
    is_project = definition.source.endswith("project")
    return role.narrowed(_UNTRUSTED.format(name=shown(name))) if is_project and not trusts_project else role


def role_of(definition: AgentDefinition, usable_model: Callable[[str], str | None]) -> Role:
    """The role that a definition describes, as it stands."""
    warnings: list[str] = []
    tools = None
    if definition.tools is not None and "*" not in definition.tools:
        names = {spelled: name_of(spelled) for spelled in definition.tools}
        tools = frozenset(name for name in names.values() if name is not None)
        if patterns := [spelled for spelled, name in names.items() if name is None]:
            warnings.append(f"It was not given {', '.join(map(shown, patterns))}: patterns cannot be kept here.")
    model = None if definition.model is None else usable_model(definition.model)
    if definition.model is not None and model is None:
        warnings.append(f"Its definition names the model {shown(definition.model)}, which cannot be asked here.")
    isolation = definition.extra.get("isolation")
    return Role(
        name=definition.name,
        prompt=definition.prompt,
        tools=tools,
        withheld=frozenset(name for spelled in definition.disallowed_tools for name in withheld_by(spelled)),
        model=model,
        is_recursive=definition.recursive,
        max_turns=definition.limits.max_turns,
        seconds=definition.limits.timeout_seconds,
        isolation=isolation if isolation in ("worktree", "none") else None,
        warnings=tuple(warnings),
    )


def names_in(catalogue: AgentCatalog) -> tuple[str, ...]:
    """The agents that can be named, a bounded number of them."""
    return tuple(shown(agent.name) for agent in catalogue.agents if not agent.disabled)[:LISTED]


def shown(name: str) -> str:
    """A name of others on one line."""
    text = name if name.isprintable() else repr(name)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _near(catalogue: AgentCatalog, name: str) -> str:
    known = {agent.name.lower(): agent.name for agent in catalogue.agents if not agent.disabled}
    near = get_close_matches(name.lower()[:200], known, _NEAR)
    names = " and ".join(shown(known[one]) for one in near)
    return f"there is no agent of that name; near to it are {names}" if near else ""


def _unknown(catalogue: AgentCatalog) -> str:
    names = names_in(catalogue)
    if not names:
        return "there is no agent of that name, nor any other; `deputy agents` says where they are looked for"
    return f"there is no agent of that name; there are {', '.join(names)}"
