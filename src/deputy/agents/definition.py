"""The types of agent definitions, their problems and remarks."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Raw: TypeAlias = "str | list[Raw] | dict[str, Raw]"
"""A value of front matter; every scalar is the text in the file, so `no` and `1.10` are strings."""

Family = Literal["deputy", "claude", "opencode"]
Scope = Literal["project", "user", "shipped"]


class DefinitionOrigin(Struct, frozen=True, kw_only=True):
    """The file of a definition."""

    path: str
    file_name: str
    """The name of the agent according to the file name."""
    family: Family = "deputy"
    scope: Scope = "project"

    @property
    def source(self) -> str:
        """Family and scope: `claude project`, `opencode user`."""
        return f"{self.family} {self.scope}"


class DefinitionRemark(Struct, frozen=True):
    """A correction of a definition, and its line."""

    line: int
    message: str


class DefinitionProblem(Struct, frozen=True, kw_only=True):
    """Why a file or folder could not be read."""

    path: str
    line: int | None = None
    message: str


class DefinitionLimits(Struct, frozen=True, kw_only=True):
    """The limits of an agent; None is the default."""

    max_turns: int | None = None
    timeout_seconds: int | None = None


class AgentDefinition(Struct, frozen=True, kw_only=True):
    """An agent as its file describes it. It is data only; reading it grants nothing."""

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None
    """The tools as spelled in the file; None inherits the tools of the caller, () is none."""
    disallowed_tools: tuple[str, ...] = ()
    model: str | None = None
    """The model as spelled in the file; None is the model of the caller."""
    recursive: bool = False
    disabled: bool = False
    limits: DefinitionLimits = DefinitionLimits()
    extra: dict[str, Raw] = {}
    """Every other key, unchanged."""
    path: str
    source: str
    warnings: tuple[DefinitionRemark, ...] = ()
