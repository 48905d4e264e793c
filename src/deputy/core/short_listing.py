"""A short listing of files: whole, or the folders with their counts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_LINES = 40


def short_listing(paths: Iterable[str]) -> str:
    """The paths, one per line; of many paths as many levels of folders as fit, with the number of files in each."""
    parts = [path.split("/") for path in paths if path and not path.startswith("[")]
    for depth in range(max(map(len, parts), default=0), 0, -1):
        lines = _at_depth(parts, depth)
        if len(lines) <= _MOST_LINES or depth == 1:
            more = len(lines) - _MOST_LINES
            return "\n".join([*lines[:_MOST_LINES], *([f"and {more} more"] if more > 0 else [])])
    return ""


def _at_depth(parts: list[list[str]], depth: int) -> list[str]:
    """The files above this depth, and the folders at it."""
    counts = Counter("/".join(path[:depth]) + "/" * (len(path) > depth) for path in parts)
    return [f"{name} ({_files(count)})" if name.endswith("/") else name for name, count in counts.items()]


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
