"""Make the role of a task from an agent definition: our tools, our models."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from msgspec import structs

from deputy.agents.tool_grants import NAMES, name_of, withheld_by
from deputy.core.request import ALWAYS_GRANTED
from deputy.core.task import NoRole, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from deputy.agents.agent_files import AgentCatalog
    from deputy.agents.definition import AgentDefinition

LISTED = 40
_NEAR = 3
_SHOWN = 64

_UNTRUSTED = (
    "The agent {name} is defined by the project, so it has only read-only tools; "
    "to allow more, add the project to agents.trusted in your own configuration."
)


def find_role(
    catalogue: AgentCatalog,
    name: str,
    usable_model: Callable[[str], str | None],
    *,
    trusts_project: bool,
    own_tools: Collection[str] = (),
) -> Role | NoRole:
    """The role of an agent by its name or the name of its file; `usable_model` resolves the name of a model."""
    matching = catalogue.matching(name)
    if not matching:
        return NoRole(reason=_near(catalogue, name) or _unknown(catalogue))
    definition, *others = matching
    if definition.disabled:
        return NoRole(reason=f"its definition in {definition.path} disables it")
    role = role_of(definition, usable_model, own_tools)
    if others:
        role = structs.replace(role, warnings=(*role.warnings, _ambiguous(name, definition, others)))
    is_project = definition.source.endswith("project")
    return role.narrowed(_UNTRUSTED.format(name=shown(name))) if is_project and not trusts_project else role


def unknown_tools(definition: AgentDefinition, own_tools: Collection[str] = ()) -> list[str]:
    """The tools of a definition that do not exist here; those of MCP servers are not known before they start."""
    known = {*NAMES.values(), *own_tools, *ALWAYS_GRANTED}
    spelled = [tool for tool in definition.tools or () if tool != "*" and not tool.startswith("mcp__")]
    return [tool for tool in spelled if (name := name_of(tool)) is not None and name not in known]


def _ambiguous(name: str, used: AgentDefinition, others: Sequence[AgentDefinition]) -> str:
    also = " and ".join(f"{one.path} ({shown(one.name)})" for one in others[:_NEAR])
    return f"The agent {shown(name)} is that of {used.path}; its name also fits {also}."


def role_of(
    definition: AgentDefinition, usable_model: Callable[[str], str | None], own_tools: Collection[str] = ()
) -> Role:
    """The role of a definition, without the check of trust."""
    warnings: list[str] = []
    tools = None
    if definition.tools is not None and "*" not in definition.tools:
        names = {spelled: name_of(spelled) for spelled in definition.tools}
        tools = frozenset(name for name in names.values() if name is not None)
        if patterns := [spelled for spelled, name in names.items() if name is None]:
            warnings.append(f"Not granted: {', '.join(map(shown, patterns))}; patterns in tools are not supported.")
    if missing := unknown_tools(definition, own_tools):
        warnings.append(f"Not granted: {', '.join(map(shown, missing))}; there is no such tool here.")
    model = None if definition.model is None else usable_model(definition.model)
    if definition.model is not None and model is None:
        warnings.append(f"The model {shown(definition.model)} of the definition cannot be used here.")
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
    """The names of the enabled agents, up to a limit."""
    return tuple(shown(agent.name) for agent in catalogue.agents if not agent.disabled)[:LISTED]


def shown(name: str) -> str:
    """A foreign name on one line, cut to a length."""
    text = name if name.isprintable() else repr(name)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _near(catalogue: AgentCatalog, name: str) -> str:
    known = {agent.name.lower(): agent.name for agent in catalogue.agents if not agent.disabled}
    near = get_close_matches(name.lower()[:200], known, _NEAR)
    names = " and ".join(shown(known[one]) for one in near)
    return f"no agent has that name; similar names: {names}" if near else ""


def _unknown(catalogue: AgentCatalog) -> str:
    names = names_in(catalogue)
    if not names:
        return "there are no agents; `deputy agents` shows the folders that are searched"
    return f"no agent has that name; the agents are: {', '.join(names)}"
