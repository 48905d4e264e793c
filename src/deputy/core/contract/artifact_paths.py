"""Check that the path of an artifact is inside the workspace, without looking at the disk."""

from __future__ import annotations

import posixpath

PATH_MAX = 4096


def why_outside(path: str, workspace: str | None) -> str | None:
    """Why a path is outside of the workspace; None when it is inside."""
    if len(path) > PATH_MAX:
        return f"it is longer than {PATH_MAX:,} characters"
    if not path.isprintable() and any(letter < " " or "\x7f" <= letter <= "\x9f" for letter in path):
        return "it holds control characters"
    if "://" in path:
        return "it is an address, not a path"
    # A backslash is a separator on Windows; it must not hide a `..`.
    plain = path.replace("\\", "/")
    if plain == "~" or plain.startswith("~/"):
        return "it starts in a home directory"
    if plain[1:2] == ":" and plain[0].isalpha():
        return "it starts with a drive letter"
    if plain.startswith("/"):
        return None if workspace and _is_beneath(plain, workspace) else "it is absolute and lies elsewhere"
    normal = posixpath.normpath(plain)
    return "it leads out of it" if normal == ".." or normal.startswith("../") else None


def _is_beneath(path: str, workspace: str) -> bool:
    root = posixpath.normpath(workspace)
    normal = posixpath.normpath(path)
    return normal == root or normal.startswith(root.rstrip("/") + "/")
