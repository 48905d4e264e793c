"""Whether a task is about the files of the workspace."""

from __future__ import annotations

import re

_PLACES = "project|repository|repo|workspace|codebase|code base|source code|folder|directory"
_ABOUT = re.compile(
    rf"\b(?:this|the|our|my) (?:{_PLACES})\b"
    r"|\b[\w-]{1,80}/[\w.-]{1,80}\b"
    r"|\b[\w-]{1,80}\.(?:py|md|toml|json|ya?ml|js|ts|tsx|rs|go|java|c|h|cpp|rb|sh|txt|html|css|sql|cfg|ini|lock)\b"
    r"|\b(?:README|Makefile|Dockerfile|CHANGELOG)\b",
    re.IGNORECASE,
)
_URL = re.compile(r"https?://\S{1,2000}")


def names_workspace(task: str) -> bool:
    """Whether the task names a file, a path or the project: its answer cannot be known without a look."""
    return _ABOUT.search(_URL.sub("", task)) is not None
