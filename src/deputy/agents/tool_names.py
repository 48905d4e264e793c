"""The names of our tools in other programs, as data."""

from __future__ import annotations

NAMES = {
    "read": "Read",
    "view": "Read",
    "notebookread": "Read",
    "grep": "Grep",
    "codebase_search": "Grep",
    "glob": "Glob",
    "ls": "Glob",
    "list": "Glob",
    "webfetch": "WebFetch",
    "web_fetch": "WebFetch",
    "fetch": "WebFetch",
    "websearch": "WebSearch",
    "web_search": "WebSearch",
    "edit": "Edit",
    "multiedit": "Edit",
    "patch": "Edit",
    "write": "Write",
    "bash": "Run",
    "shell": "Run",
    "run": "Run",
    "execute": "Run",
    "task": "Delegate",
    "agent": "Delegate",
    "delegate": "Delegate",
    "subtask": "Subtask",
}
"""By the name in lower case."""

WITHHELD_TOO = {"edit": ("Write",)}
"""Tools that are withheld together with a name: opencode's `edit` means every change of a file."""


def name_of(spelled: str) -> str | None:
    """Our tool of this name, else the name itself; None for a name with a pattern, which cannot be enforced here."""
    if "(" in spelled:
        return None
    return NAMES.get(spelled.lower(), spelled)


def withheld_by(spelled: str) -> tuple[str, ...]:
    """The tools that a withheld name removes; a pattern removes the whole tool."""
    name = spelled.partition("(")[0]
    return (NAMES.get(name.lower(), name), *WITHHELD_TOO.get(name, ()))
