"""The settings in force, each with the file that it comes from."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs, to_builtins

from deputy.config import load_effective_settings, load_user, narrowing, project_file
from deputy.config.settings import Settings
from deputy.config.settings_file import read_settings

Source: TypeAlias = Literal["default", "yours", "project"]

_NAMES = {
    "models.default": "model",
    "approval.policy": "approval",
    "limits.tasks": "tasks",
    "limits.concurrency": "concurrency",
    "limits.max_depth": "max_depth",
    "limits.max_spawns": "max_spawns",
    "limits.repairs": "repairs",
    "limits.idle_seconds": "idle_seconds",
    "limits.tools": "tool_seconds",
    "limits.commands": "wall",
    "routing.fallback": "fallback",
    "routing.inline": "inline",
    "notify.command": "notify",
}
"""By the key in a file: the field of the effective settings."""


class SettingInForce(Struct, frozen=True, kw_only=True):
    """One setting, by its key in a file."""

    key: str
    value: Any
    source: Source


def settings_in_force(directory: str = ".") -> list[SettingInForce]:
    """The settings for a directory, in the order of the files."""
    own = load_user()
    user = {**structs.asdict(narrowing(own)), "model": own.models.default, "notify": own.notify.command}
    project = structs.asdict(narrowing(read_settings(project_file(directory)) or Settings()))
    effective = load_effective_settings(directory)
    found: list[SettingInForce] = []
    for key, name in _NAMES.items():
        value, shipped = getattr(effective, name), type(effective)()
        source: Source = "default"
        if value != getattr(shipped, name):
            # A project's value is in force only where it is stricter than the user's.
            is_project = project.get(name) not in (None, {}) and user.get(name) != project[name]
            source = "project" if is_project and _is_of(value, project[name]) else "yours"
        elif user.get(name) not in (None, {}, ()):
            source = "yours"
        found.append(SettingInForce(key=key, value=to_builtins(value), source=source))
    return found


def _is_of(value: Any, given: Any) -> bool:
    """Whether the value in force comes from these settings; a table mixes both files."""
    return isinstance(given, dict) or value == given
