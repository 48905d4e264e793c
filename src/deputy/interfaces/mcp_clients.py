"""The MCP clients that `deputy connect` knows: their files, the entry of our server, and the advice for parents."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct

from deputy.config.toml_edit import CannotEdit, with_values, without_table
from deputy.core.errors import DeputyError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SERVER = "deputy"
_TOOL_SECONDS = 3600
"""A call of Delegate may take long; clients give up much earlier by default."""

_SKILL = """\
---
name: deputy
description: {about}
---

# Delegate with Deputy

{advice}

{tools}
"""

ABOUT = (
    "Delegate work to subagents with the tools of the MCP server deputy. "
    "Use it for several independent questions, a second opinion, or reading that would fill your own context."
)


class McpClient(Struct, frozen=True, kw_only=True):
    """Where a client has its user's settings, and in which form."""

    name: str
    form: Literal["json", "toml"]
    folder_variable: str
    """The variable that moves the folder of its settings."""
    folder: str
    """That folder, below the home directory."""
    below: str = ""
    """A folder between the variable's folder and the settings."""
    config: str
    place: tuple[str, ...]
    """The table of MCP servers in the settings."""
    passes: Literal["all", "list", "table"]
    """Which variables the server gets: all of the client's, those of a list, or those of a table with `$NAME`."""

    def folder_in(self, environ: Mapping[str, str]) -> Path:
        """The folder of its settings."""
        moved = environ.get(self.folder_variable, "")
        return Path(moved) / self.below if moved else Path(environ.get("HOME", "")) / self.folder

    def config_path(self, environ: Mapping[str, str]) -> Path:
        """The file with its MCP servers."""
        # Claude Code has this file beside its folder, unless the folder was moved.
        if self.name == "claude" and not environ.get(self.folder_variable):
            return Path(environ.get("HOME", "")) / self.config
        return self.folder_in(environ) / self.config

    def skill_path(self, environ: Mapping[str, str]) -> Path:
        """The file with the advice for parents."""
        return self.folder_in(environ) / "skills" / SERVER / "SKILL.md"

    def entry(self, command: Sequence[str], variables: Sequence[str]) -> dict[str, Any]:
        """The entry of our server."""
        match self.name:
            case "opencode":
                return {"type": "local", "command": list(command), "enabled": True}
            case "codex":
                passed = {"env_vars": list(variables)} if variables else {}
                return {"command": command[0], "args": list(command[1:]), **passed, "tool_timeout_sec": _TOOL_SECONDS}
            case "gemini":
                passed = {"env": {name: f"${name}" for name in variables}} if variables else {}
                return {"command": command[0], "args": list(command[1:]), **passed, "timeout": _TOOL_SECONDS * 1000}
            case _:
                return {"type": "stdio", "command": command[0], "args": list(command[1:])}

    def connected(self, text: str | None, entry: Mapping[str, Any]) -> str:
        """The settings with our entry; further keys of an entry that is there stay."""
        if self.form == "toml":
            return with_values(text or "", [*self.place, SERVER], entry)
        whole = _json_object(text)
        servers = _table_at(whole, self.place)
        old = servers.get(SERVER)
        servers[SERVER] = {**(cast("dict[str, Any]", old) if isinstance(old, dict) else {}), **entry}
        return _json_text(whole, text)

    def disconnected(self, text: str) -> str | None:
        """The settings without our entry; None if there are no others."""
        if self.form == "toml":
            rest = without_table(text, [*self.place, SERVER])
            return rest if rest == text or rest.strip() else None
        whole = _json_object(text)
        servers = _table_at(whole, self.place)
        if servers.pop(SERVER, None) is None:
            return text
        if not servers:
            _table_at(whole, self.place[:-1]).pop(self.place[-1])
        return _json_text(whole, text) if whole else None


CLIENTS = {
    client.name: client
    for client in (
        McpClient(
            name="claude",
            form="json",
            folder_variable="CLAUDE_CONFIG_DIR",
            folder=".claude",
            config=".claude.json",
            place=("mcpServers",),
            passes="all",
        ),
        McpClient(
            name="codex",
            form="toml",
            folder_variable="CODEX_HOME",
            folder=".codex",
            config="config.toml",
            place=("mcp_servers",),
            passes="list",
        ),
        McpClient(
            name="opencode",
            form="json",
            folder_variable="XDG_CONFIG_HOME",
            folder=".config/opencode",
            below="opencode",
            config="opencode.json",
            place=("mcp",),
            passes="all",
        ),
        McpClient(
            name="gemini",
            form="json",
            folder_variable="GEMINI_CLI_HOME",
            folder=".gemini",
            below=".gemini",
            config="settings.json",
            place=("mcpServers",),
            passes="table",
        ),
    )
}


def require_sdk() -> None:
    """Raise unless the MCP server can be started from this installation."""
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise DeputyError("the MCP server needs the `mcp` package: pip install 'deputy-agents[mcp]'")


def own_command(*words: str) -> list[str]:
    """A command of this Deputy by absolute path: a program with a window has no PATH of a shell or a venv."""
    script = Path(sys.executable).parent / "deputy"
    start = [str(script)] if script.exists() else [sys.executable, "-m", "deputy"]
    return [*start, *words]


def skill_text() -> str:
    """The advice for parents as a skill."""
    advice = files("deputy.tools").joinpath("delegate.md").read_text("utf-8").strip()
    tools = files("deputy.interfaces.mcp").joinpath("descriptions", "instructions.md").read_text("utf-8").strip()
    return _SKILL.format(about=ABOUT, advice=advice, tools=tools)


def _json_object(text: str | None) -> dict[str, Any]:
    try:
        whole: Any = json.loads(text) if text and text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise CannotEdit(f"it is not plain JSON: {error}") from error
    if not isinstance(whole, dict):
        raise CannotEdit("it is not a JSON object")
    return cast("dict[str, Any]", whole)


def _table_at(whole: dict[str, Any], place: Sequence[str]) -> dict[str, Any]:
    for name in place:
        below = whole.setdefault(name, {})
        if not isinstance(below, dict):
            raise CannotEdit(f"{name} is not an object")
        whole = cast("dict[str, Any]", below)
    return whole


def _json_text(whole: dict[str, Any], before: str | None) -> str:
    """JSON in the indent that the file has."""
    second = (before or "").partition("\n")[2]
    indent = second[: len(second) - len(second.lstrip(" \t"))] or "  "
    ending = "\n" if before is None or before.endswith("\n") else ""
    return json.dumps(whole, indent=indent, ensure_ascii=False) + ending
