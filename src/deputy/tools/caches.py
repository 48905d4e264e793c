"""What programs leave in a repository and make again: nobody's work."""

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
    """Whether a path as git names it, folders with a slash behind, is of a cache; a link of such a name is none."""
    *folders, name = path.split("/")
    return not _FOLDERS.isdisjoint(folders) or name.endswith(_FILES)
