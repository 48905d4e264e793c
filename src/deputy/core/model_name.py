"""Names of models that stand for a file: who may say them."""

from __future__ import annotations

from typing import Final

SCRIPT: Final = "script:"
ONLY_A_PERSON: Final = "a script is named by the person who runs Deputy, never by a caller, a text or a project's file"


def is_script(name: str) -> bool:
    """Whether a name stands for a file: whoever may say it can have any file looked at."""
    return name.startswith(SCRIPT)
