"""Whether an artifact's path lies inside the workspace, judged by its letters alone."""

from __future__ import annotations

import posixpath

PATH_MAX = 4096


def why_outside(path: str, workspace: str | None) -> str | None:
    """The reason why a path is not one inside the workspace; None when it is."""
    if len(path) > PATH_MAX:
        return f"it is longer than {PATH_MAX:,} characters"
    if not path.isprintable() and any(letter < " " or "\x7f" <= letter <= "\x9f" for letter in path):
        return "it holds control characters"
    if "://" in path:
        return "it is an address, not a path"
    # What is a separator elsewhere must not hide a way out.
    plain = path.replace("\\", "/")
    if plain == "~" or plain.startswith("~/"):
        return "it starts in a home directory"
    if plain[1:2] == ":" and plain[0].isalpha():
        return "it starts at a drive"
    if plain.startswith("/"):
        return None if workspace and _is_beneath(plain, workspace) else "it is absolute and lies elsewhere"
    normal = posixpath.normpath(plain)
    return "it leads out of it" if normal == ".." or normal.startswith("../") else None


def _is_beneath(path: str, workspace: str) -> bool:
    root = posixpath.normpath(workspace)
    normal = posixpath.normpath(path)
    return normal == root or normal.startswith(root.rstrip("/") + "/")
