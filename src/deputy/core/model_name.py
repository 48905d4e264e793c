"""Model names that stand for a file."""

from __future__ import annotations

from typing import Final

SCRIPT: Final = "script:"
ONLY_A_PERSON: Final = "only the person who runs Deputy may name a script, not a caller, a text or a project's file"


def is_script(name: str) -> bool:
    """Whether a name stands for a file; such a name can make Deputy read any file."""
    return name.startswith(SCRIPT)
