"""Decide an agent's permission requests by the grant; the default is no."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from deputy.backends.cli.program import READING, RUNNING, WRITING, Fields, part, parts, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.acp.jsonrpc import RpcRequest

WEB = frozenset({"WebFetch", "WebSearch"})
NEEDED: Mapping[str, frozenset[str]] = {
    "read": READING, "search": READING, "edit": WRITING, "delete": WRITING, "move": WRITING, "execute": RUNNING,
    "fetch": WEB,
}  # fmt: skip
"""For each kind of tool, our tools of which one must be granted; other kinds are never allowed."""
HARMLESS = frozenset({"read", "search", "think", "fetch", "switch_mode"})
"""Kinds of tools that change nothing."""
_ON_FILES = frozenset({"read", "search", "edit", "delete", "move"})
_PATHS = ("path", "file_path", "filePath", "filepath", "abs_path", "absolute_path", "dir_path", "notebook_path")
_MOST_PATHS = 100


class PermissionRequest(Struct, frozen=True, kw_only=True):
    """The kind and paths of a tool call."""

    kind: str
    paths: tuple[str, ...]

    @property
    def writes(self) -> bool:
        """Whether the call may change something."""
        return self.kind not in HARMLESS


def permission_of(call: Fields, known: PermissionRequest | None = None) -> PermissionRequest:
    """The permission that a tool call needs, merged with earlier messages about the call."""
    kind = call.get("kind")
    paths = tuple(dict.fromkeys((*(known.paths if known else ()), *paths_of(call))))
    return PermissionRequest(
        kind=kind if isinstance(kind, str) else known.kind if known else "other", paths=paths[:_MOST_PATHS]
    )


def paths_of(call: Fields) -> list[str]:
    """Every path in a tool call."""
    places = [text_of(place.get("path")) for place in parts(call.get("locations"))]
    differences = [text_of(piece.get("path")) for piece in parts(call.get("content")) if piece.get("type") == "diff"]
    given = part(call, "rawInput")
    named: list[Any] = [given.get(name) for name in _PATHS]
    return [path for path in (*places, *differences, *named) if isinstance(path, str) and path]


def is_granted(permission: PermissionRequest, tools: frozenset[str]) -> bool:
    """Whether the granted tools allow it; the caller checks the paths."""
    if permission.kind in _ON_FILES and not permission.paths:
        return False
    return bool(NEEDED.get(permission.kind, frozenset()) & tools)


def answer_of(asked: RpcRequest, *, allowed: bool) -> Fields:
    """Select the option for the decision; never "always allow", which would outlive the grant."""
    options = parts(asked.params.get("options"))
    wanted = ("allow_once",) if allowed else ("reject_once", "reject_always")
    for kind in wanted:
        for option in options:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return {"outcome": {"outcome": "selected", "optionId": cast("str", option["optionId"])}}
    return {"outcome": {"outcome": "cancelled"}}
