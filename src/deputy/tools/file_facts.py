"""What is on disk where artifacts are said to be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from deputy.core.contract import FileFact

if TYPE_CHECKING:
    from collections.abc import Iterable


def file_facts(root: str | Path, paths: Iterable[str]) -> list[FileFact]:
    """The fact of each path beneath a root; of a directory the size is how many things are in it."""
    real_root = os.path.realpath(root)
    return [_fact(real_root, path) for path in paths]


def _fact(root: str, path: str) -> FileFact:
    try:
        place = Path(os.path.realpath(Path(root, path)))
        found = place.stat()
        size = sum(1 for _ in place.iterdir()) if place.is_dir() else found.st_size
    except (OSError, ValueError):
        return FileFact(path=path, exists=False)
    is_inside = place.is_relative_to(root)
    return FileFact(path=path, exists=True, size=size, modified_at=found.st_mtime, is_inside=is_inside)
