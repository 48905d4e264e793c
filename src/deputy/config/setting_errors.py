"""Explain errors in a settings file."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, ValidationError, convert

from deputy.config.settings import (
    AgentSettings,
    ApprovalSettings,
    CommandSettings,
    FallbackSettings,
    JournalSettings,
    LimitSettings,
    McpSettings,
    ModelSettings,
    RoutingSettings,
    Settings,
    SubtaskSettings,
    TextSettings,
    UserSettings,
)
from deputy.core.detect.phrase_tables import Route
from deputy.core.errors import Unquoted, UsageError
from deputy.core.limits import WallSetting

_TABLES = {
    "": UserSettings,
    "agents": AgentSettings,
    "approval": ApprovalSettings,
    "commands.*": CommandSettings,
    "journal": JournalSettings,
    "ladder": FallbackSettings,
    "limits": LimitSettings,
    "limits.commands.*": WallSetting,
    "mcp": McpSettings,
    "models": ModelSettings,
    "models.routes": Route,
    "routing": RoutingSettings,
    "subtasks": SubtaskSettings,
    "text": TextSettings,
}
_KINDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a table",
    "str": "a string",
}
_NAMES: dict[type, str] = {bool: "bool", dict: "object", float: "float", int: "int", list: "array", str: "str"}
_RIGHT = {
    "approval.policy": 'one of "ask", "allow" and "refuse"',
    "journal.fsync": 'one of "group", "each" and "off"',
    "journal.retention_days": "a number from 0 to 36500",
    "ladder.chains.*": "a list of models",
    "ladder.programs.*": "a list of programs",
    "limits.commands.*": "a table with default and max in seconds",
    "limits.commands.*.default": "a number of seconds from 1 to 2592000",
    "limits.commands.*.max": "a number of seconds from 1 to 2592000",
    "limits.concurrency": "a whole number from 1 to 4",
    "limits.idle_seconds": "a number from 1 to 86400",
    "limits.max_depth": "a whole number from 0 to 10",
    "limits.max_spawns": "a whole number from 0 to 100000",
    "limits.repairs": "a whole number from 0 to 2",
    "limits.tools.*": "a number of seconds from 1 to 86400",
}
"""Valid values where the type alone is not enough; `*` is any name."""
_VALUES: dict[str, Any] = {
    "commands.*": CommandSettings,
    "commands.*.agents.*": str,
    "ladder.chains.*": tuple[str, ...],
    "ladder.programs.*": tuple[str, ...],
    "limits.commands.*": WallSetting,
    "limits.tools.*": Annotated[float, Meta(ge=1, le=86_400)],
    "models.aliases.*": str,
}
"""The type of the values in tables with free keys."""


def explained(path: str, said: Any, message: str, kind: type[Settings]) -> UsageError:
    """A UsageError for a validation error of msgspec."""
    problem, _, place = message.partition(" - at `$")
    keys: list[str] = []
    pattern: list[str] = []
    for step in place.rstrip("`").replace("[...]", ".*").replace("[", ".").replace("]", "").split(".")[1:]:
        # msgspec does not name the key in a table with free keys; find it.
        key = _wrong_key(said, ".".join([*pattern, "*"])) if step == "*" else step
        keys.append(key)
        pattern += ["*"] if step == "*" else [] if key.isdigit() else [key]
        said = said[int(key) if isinstance(said, list) else key]
    where = f"{path}: {'.'.join(keys)}"
    if " field `" not in problem:
        subject = problem.split("`")[1].removesuffix(" | null") if "`" in problem else "str"
        return UsageError(where, said, f"must be {_RIGHT.get('.'.join(pattern)) or _KINDS.get(subject, subject)}")
    subject = problem.partition("`")[2].removesuffix("`")
    if problem.startswith("Object missing"):
        return UsageError(where, said, f"the key {subject!r} is missing")
    table = _TABLES[".".join(pattern)] if pattern else kind
    known = ", ".join(table.__struct_fields__)
    return UsageError(
        f"{path}: {'.'.join([*keys, subject])}", kind_of(said[subject]), f"unknown key; the keys are: {known}"
    )


def kind_of(value: object) -> Unquoted:
    """The type of a value, in words; the value of an unknown key may be a secret."""
    return Unquoted(_KINDS.get(_NAMES.get(type(value), ""), "a value"))


def _wrong_key(table: dict[str, Any], pattern: str) -> str:
    wanted = _VALUES[pattern]
    for key, value in table.items():
        try:
            convert(value, wanted)
        except ValidationError:
            return key
    return next(iter(table))


def line_of(content: bytes, problem: str) -> str:
    """The line with a TOML error, without its value, which may be a secret."""
    number = problem.partition("(at line ")[2].partition(",")[0]
    lines = content.decode(errors="replace").split("\n")
    line = lines[int(number) - 1] if number.isdigit() and int(number) <= len(lines) else lines[0]
    key, equals, value = line.partition("=")
    return f"{key}{equals} …" if value.strip() else line
