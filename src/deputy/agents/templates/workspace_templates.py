"""The templates of a workspace, read on first use."""

from __future__ import annotations

import asyncio
from pathlib import Path

from deputy.agents.templates.template_files import load_templates
from deputy.core.subtask.template_match import TemplateIndex


class WorkspaceTemplates:
    """The templates of a workspace, read in a thread on first use."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._reading = asyncio.Lock()
        self._read: TemplateIndex | None = None

    async def load(self) -> TemplateIndex:
        """The index of the templates."""
        async with self._reading:
            if self._read is None:
                self._read = await asyncio.to_thread(_index, self._workspace)
        return self._read


def _index(workspace: Path) -> TemplateIndex:
    return TemplateIndex(load_templates(workspace, Path.home()).templates)
