"""Whether an agent may do what it asks about: by our grant, and no unless the grant says yes."""

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
"""By the kind of a tool, our tools of which one must be granted; a kind that is not here is never allowed."""
HARMLESS = frozenset({"read", "search", "think", "fetch", "switch_mode"})
"""Kinds that change nothing."""
_ON_FILES = frozenset({"read", "search", "edit", "delete", "move"})
_PATHS = ("path", "file_path", "filePath", "filepath", "abs_path", "absolute_path", "dir_path", "notebook_path")
_MOST_PATHS = 100


class PermissionRequest(Struct, frozen=True, kw_only=True):
    """What an agent asks to do."""

    kind: str
    paths: tuple[str, ...]

    @property
    def writes(self) -> bool:
        """Whether it would change something."""
        return self.kind not in HARMLESS


def permission_of(call: Fields, known: PermissionRequest | None = None) -> PermissionRequest:
    """What a tool call is about, as it is told; with what was told of it before."""
    kind = call.get("kind")
    paths = tuple(dict.fromkeys((*(known.paths if known else ()), *paths_of(call))))
    return PermissionRequest(
        kind=kind if isinstance(kind, str) else known.kind if known else "other", paths=paths[:_MOST_PATHS]
    )


def paths_of(call: Fields) -> list[str]:
    """Every path that a tool call names."""
    places = [text_of(place.get("path")) for place in parts(call.get("locations"))]
    differences = [text_of(piece.get("path")) for piece in parts(call.get("content")) if piece.get("type") == "diff"]
    given = part(call, "rawInput")
    named: list[Any] = [given.get(name) for name in _PATHS]
    return [path for path in (*places, *differences, *named) if isinstance(path, str) and path]


def is_granted(permission: PermissionRequest, tools: frozenset[str]) -> bool:
    """Whether the tools that are granted allow it; where its paths lead is another question."""
    if permission.kind in _ON_FILES and not permission.paths:
        return False
    return bool(NEEDED.get(permission.kind, frozenset()) & tools)


def answer_of(asked: RpcRequest, *, allowed: bool) -> Fields:
    """The option that says so: once only, never for good, which would outlive the grant."""
    options = parts(asked.params.get("options"))
    wanted = ("allow_once",) if allowed else ("reject_once", "reject_always")
    for kind in wanted:
        for option in options:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return {"outcome": {"outcome": "selected", "optionId": cast("str", option["optionId"])}}
    return {"outcome": {"outcome": "cancelled"}}
