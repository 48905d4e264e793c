"""Agents that speak the Agent Client Protocol (ACP): one client, and each agent as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.acp.acp_turn import AcpBackend
    from deputy.core.redaction import Redactor
    from deputy.engine.ports import NotReady, Ready
    from deputy.engine.ports.text_files import OpenTextFiles

NAMES = ("claude", "codex", "gemini", "opencode", "copilot", "qwen")
"""The known agents, as in `acp:<name>`."""


def acp_backend(
    name: str, environ: Mapping[str, str], open_files: OpenTextFiles, redactor: Redactor | None = None
) -> AcpBackend | None:
    """The backend for the agent of this name; None when it is unknown."""
    from deputy.backends.acp.acp_turn import AcpBackend
    from deputy.backends.acp.known_agents import AGENTS

    agent = AGENTS.get(name)
    return None if agent is None else AcpBackend(agent, environ, open_files, redactor=redactor)


def acp_backends(
    environ: Mapping[str, str], open_files: OpenTextFiles, redactor: Redactor | None = None
) -> tuple[AcpBackend, ...]:
    """A backend for every known agent, installed or not."""
    found = (acp_backend(name, environ, open_files, redactor) for name in NAMES)
    return tuple(backend for backend in found if backend is not None)


async def check_agents(environ: Mapping[str, str]) -> dict[str, Ready | NotReady]:
    """Check which agents are installed, in parallel."""
    import asyncio

    from deputy.backends.acp.known_agents import AGENTS
    from deputy.backends.cli.installed import find_installed

    async with asyncio.TaskGroup() as group:
        looks = {name: group.create_task(find_installed(agent.program, environ)) for name, agent in AGENTS.items()}
    return {name: look.result() for name, look in looks.items()}
