"""The task commands as data: which agent, with which tools, and where it may write."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, convert

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT = "default"
_FILE = Path(__file__).with_name("command_table.toml")


class TaskCommand(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One command: its agents by the language of the task, and the limits of what they may do."""

    agents: dict[str, str]
    tools: tuple[str, ...]
    writes: Literal["anywhere", "work folder", "nowhere"]

    def agent(self, language: str, own: Mapping[str, str]) -> str:
        """The agent for a language; the configured agent wins over the shipped one."""
        name = language.strip().lower()
        chosen = {DEFAULT: self.agents[DEFAULT], **self.agents, **{key.lower(): agent for key, agent in own.items()}}
        return chosen.get(name) or chosen[DEFAULT]


@cache
def commands() -> Mapping[str, TaskCommand]:
    """All task commands, by name."""
    import tomllib

    return convert(tomllib.loads(_FILE.read_text(encoding="utf-8")), dict[str, TaskCommand])
