"""Folders and files of caches, which programs create again by themselves."""

from __future__ import annotations

_FOLDERS = frozenset(
    {
        ".cache",
        ".gradle",
        ".hypothesis",
        ".mypy_cache",
        ".nox",
        ".parcel-cache",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
        "venv",
    }
)
_FILES = (".DS_Store", ".pyc")


def is_cache(path: str) -> bool:
    """Whether a path from git's output (folders end in a slash) belongs to a cache."""
    *folders, name = path.split("/")
    return not _FOLDERS.isdisjoint(folders) or name.endswith(_FILES)
