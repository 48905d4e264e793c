"""Read the tools that a definition grants and withholds, from all forms of `tools` and `permission`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deputy.agents.definition import Raw

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


WHOLE_VALUES: dict[str, tuple[str, ...] | None] = {
    "all": ("*",),
    "all tools": ("*",),
    "none": (),
    "no tools": (),
    "false": (),
    "null": (),
    "~": (),
    "inherit": None,
    "true": None,
}
"""Words for a whole list of tools."""

NO_TOOLS = "the list is empty, so the agent has no tools; remove the key to inherit all tools"
YES = frozenset({"true", "yes", "on", "allow", "ask", "1", "enabled"})
NO = frozenset({"false", "no", "off", "deny", "0", "disabled"})


class ToolGrants(Struct, frozen=True, kw_only=True):
    """Granted tools (None: those of the caller), withheld tools, and corrections."""

    tools: tuple[str, ...] | None = None
    withheld: tuple[str, ...] = ()
    forgiven: tuple[str, ...] = ()


def read_grants(value: Raw) -> ToolGrants:
    """Read `tools`: a comma-separated string, a list, a map of booleans, or a word for all or none."""
    if isinstance(value, dict):
        return _read_map(value)
    if isinstance(value, list):
        return _read_list(value)
    word = value.strip().lower()
    if word in WHOLE_VALUES:
        tools = WHOLE_VALUES[word]
        meaning = "all tools" if tools == ("*",) else "the caller's tools" if tools is None else "no tools"
        return ToolGrants(tools=tools, forgiven=(f"{value.strip()!r} was read as {meaning}",))
    names, forgiven = split_names(value)
    return ToolGrants(tools=names, forgiven=forgiven if names else (NO_TOOLS,))


def read_permission(value: Raw) -> ToolGrants:
    """Read `permission`: which tools it allows and withholds; rules for patterns are not applied."""
    if isinstance(value, str) and value.strip().lower() in YES | NO:
        value = {"*": value}
    if not isinstance(value, dict):
        return ToolGrants(tools=(), forgiven=("not understood, so no tools are granted",))
    left: dict[str, bool] = {}
    leaves_others = True
    for tool, verdict in value.items():
        if tool == "*":
            # The last matching rule decides, so a rule for everything cancels those above it.
            leaves_others = _is_allowed(verdict)
            left.clear()
        else:
            left[tool] = _is_allowed(verdict)
    return ToolGrants(
        tools=None if leaves_others else _unique(tool for tool, allowed in left.items() if allowed),
        withheld=_unique(tool for tool, allowed in left.items() if not allowed),
    )


def _is_allowed(verdict: Raw) -> bool:
    """Whether a verdict, or one of its verdicts on patterns, allows anything."""
    if isinstance(verdict, dict):
        return any(map(_is_allowed, verdict.values()))
    return isinstance(verdict, str) and verdict.strip().lower() in YES


def split_names(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names in a text, and corrections; commas in parentheses do not separate."""
    text = text.strip()
    if text.startswith("["):
        text = text.strip("[]")
    parts = _split(text, ",;\n")
    names = [name for part in parts for name in _split(part, " \t")]
    in_spaces = len(names) > len(parts)
    return _unique(map(_clean, names)), ("names without commas between them were read as separate tools",) * in_spaces


def _read_list(items: list[Raw]) -> ToolGrants:
    names: list[str] = []
    withheld: list[str] = []
    forgiven: list[str] = []
    for item in items:
        match item:
            case str():
                found, spoken = split_names(item)
                names += found
                forgiven += spoken
            case dict():
                inner = _read_map(item)
                names += inner.tools or ()
                withheld += inner.withheld
                forgiven += (*inner.forgiven, "a map in the list of tools was read as booleans")
            case list():
                forgiven.append("a list inside the list of tools is ignored")
    return ToolGrants(tools=_unique(names), withheld=_unique(withheld), forgiven=tuple(forgiven))


def _read_map(pairs: dict[str, Raw]) -> ToolGrants:
    """True grants and false withholds; with only false values the others are inherited, unless `"*"` is false."""
    verdicts = {tool: verdict.strip().lower() if isinstance(verdict, str) else "" for tool, verdict in pairs.items()}
    granted = _unique(tool for tool, word in verdicts.items() if word in YES)
    withheld = _unique(tool for tool, word in verdicts.items() if word not in YES and tool != "*")
    forgiven = [
        f"{tool!r} is neither true nor false and was read as false"
        for tool, word in verdicts.items()
        if word not in YES and word not in NO
    ]
    if granted and withheld and "*" not in verdicts:
        forgiven.append("only the tools with true are granted; without any true, all others would be inherited")
    inherits = not granted and withheld and "*" not in verdicts
    return ToolGrants(tools=None if inherits else granted, withheld=withheld, forgiven=tuple(forgiven))


def _split(text: str, separators: str) -> list[str]:
    """The parts between separators outside of parentheses."""
    parts: list[str] = []
    start = depth = 0
    for index, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            depth = max(depth - 1, 0)
        elif depth == 0 and character in separators:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part for part in map(str.strip, parts) if part]


def _clean(name: str) -> str:
    return name.strip("\"'`").strip()


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name))
