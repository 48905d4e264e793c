"""What an agent definition is once it has been read, and what is said about one that could not be read as it stands."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Raw: TypeAlias = "str | list[Raw] | dict[str, Raw]"
"""A value of front matter: every scalar is the text that stands in the file, so `no` and `1.10` stay what they are."""

Family = Literal["deputy", "claude", "opencode"]
Scope = Literal["project", "user", "shipped"]


class DefinitionOrigin(Struct, frozen=True, kw_only=True):
    """Where a definition comes from."""

    path: str
    file_name: str
    """The agent's name as the file's name gives it."""
    family: Family = "deputy"
    scope: Scope = "project"

    @property
    def source(self) -> str:
        """The origin in words: `claude project`, `opencode user`."""
        return f"{self.family} {self.scope}"


class DefinitionRemark(Struct, frozen=True):
    """Something that was forgiven in a definition, and the line of the file it stands on."""

    line: int
    message: str


class DefinitionProblem(Struct, frozen=True, kw_only=True):
    """Why a file or folder gave no definition."""

    path: str
    line: int | None = None
    message: str


class DefinitionLimits(Struct, frozen=True, kw_only=True):
    """The limits a definition sets for its agent; None leaves the default."""

    max_turns: int | None = None
    timeout_seconds: int | None = None


class AgentDefinition(Struct, frozen=True, kw_only=True):
    """An agent as its file describes it. It is data: having been read, it has been granted nothing."""

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None
    """What it may use, as spelled; None inherits everything the caller has, empty is nothing."""
    disallowed_tools: tuple[str, ...] = ()
    model: str | None = None
    """The model as spelled; None takes the caller's."""
    inherits_model: bool = False
    """The file says `inherit`, so that no default may stand in for the caller's model."""
    recursive: bool = False
    disabled: bool = False
    limits: DefinitionLimits = DefinitionLimits()
    extra: dict[str, Raw] = {}
    """Every other key, untouched, under its own spelling."""
    path: str
    source: str
    warnings: tuple[DefinitionRemark, ...] = ()
