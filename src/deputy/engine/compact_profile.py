"""The compact profile: a short prompt and few short tools, for small models and small windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from deputy.core.request import GLOB, WEB_TOOLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.core.conversation import ToolCall
    from deputy.engine.ports import FlowTool, Tool

HIDDEN: Final = WEB_TOOLS | {GLOB}
"""Tools of the default grant that a compact agent is not offered: it gets a listing, and Read lists a folder."""
_OUTPUT_BYTES: Final = 8_000
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {"Read": ("path", "offset"), "Grep": ("pattern", "path")}
"""The fields that are offered: a small model fills in every field that it sees."""
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {"Grep": {"context": 2, "ignore_case": True}}


def short_parameters(tool: Tool | FlowTool) -> dict[str, Any]:
    """The schema of a tool with the fields that a small model needs."""
    schema = tool.schema
    if tool.name not in _FIELDS:
        return schema
    fields = {name: schema["properties"][name] for name in _FIELDS[tool.name]}
    return {**schema, "properties": fields}


def with_defaults(call: ToolCall) -> Mapping[str, Any]:
    """The arguments of a call, with values for the fields that are not offered."""
    return {**_DEFAULTS.get(call.name, {}), **call.arguments}


def output_bytes(window: int | None) -> int:
    """How much one tool result may hold: about a quarter of the window."""
    return _OUTPUT_BYTES if window is None else min(_OUTPUT_BYTES, window)
