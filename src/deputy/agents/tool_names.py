"""What other programs call the tools that there are here, as data."""

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
"""What else goes when a name is withheld: opencode's `edit` stands for every way to change a file."""


def name_of(spelled: str) -> str | None:
    """The tool that a name stands for here; a tool of a program's own keeps its name.

    None for a name with a pattern behind it: what it allows cannot be kept within the pattern here.
    """
    if "(" in spelled:
        return None
    return NAMES.get(spelled.lower(), spelled)


def withheld_by(spelled: str) -> tuple[str, ...]:
    """The tools that withholding a name takes away; one with a pattern takes the whole tool."""
    name = spelled.partition("(")[0]
    return (NAMES.get(name.lower(), name), *WITHHELD_TOO.get(name, ()))
