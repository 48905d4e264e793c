from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deputy.agents.definition import AgentDefinition, DefinitionOrigin
from deputy.agents.read_definition import read_definition

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def read():
    """Read a text that must be a definition."""

    def reading(text: str, *, family: str = "claude", file_name: str = "from-file") -> AgentDefinition:
        found = read_definition(text, DefinitionOrigin(path="agent.md", file_name=file_name, family=family))
        assert isinstance(found, AgentDefinition), found
        return found

    return reading


@pytest.fixture
def write():
    """Write a small definition, or any text, into a file and all the folders above it."""

    def writing(path: Path, text: str | None = None, *, name: str | None = None) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            text if text is not None else f"---\nname: {name or path.stem}\ndescription: Does it.\n---\nDo it.\n"
        )
        return path

    return writing
