"""Agents that speak the Agent Client Protocol (ACP): one client, and each agent as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.acp.acp_turn import AcpBackend
    from deputy.core.redaction import Redactor
    from deputy.engine.ports.backend import OpenTextFiles

NAMES = ("claude", "codex", "gemini", "opencode", "copilot", "qwen")
"""The known agents, as in `acp:<name>`."""


def acp_backend(
    name: str, environ: Mapping[str, str], open_files: OpenTextFiles, redactor: Redactor | None = None
) -> AcpBackend | None:
    """The backend for the agent of this name; None when it is unknown."""
    from deputy.backends.acp.acp_turn import AcpBackend
    from deputy.backends.acp.known_agents import AGENTS

    agent = AGENTS.get(name)
    return None if agent is None else AcpBackend(agent, environ, open_files, redactor)
