"""Project notes: the file in which a project tells agents how it works, cut to a size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.conversation import estimated_tokens, text_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deputy.core.subtask.context_passing import PassedFile

NOTES_FILES = ("AGENTS.md", "CLAUDE.md")
"""At the root of the workspace; the first that has text is used."""
NOTES_TOKENS = 2000


def chosen_notes(files: Iterable[PassedFile]) -> PassedFile | None:
    """The first file that can be read and has text."""
    return next((file for file in files if not file.problem and file.text.strip()), None)


def shortened_notes(text: str) -> tuple[str, bool]:
    """The lines of the notes that fit, and whether some were left out."""
    kept: list[str] = []
    size = 0
    for line in text.strip().splitlines():
        size += text_size(line) + 1
        if estimated_tokens(size) > NOTES_TOKENS:
            return "\n".join(kept).rstrip(), True
        kept.append(line)
    return "\n".join(kept), False
