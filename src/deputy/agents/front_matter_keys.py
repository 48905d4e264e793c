"""The keys of front matter, as data: ours and those of other programs."""

from __future__ import annotations

FIELDS = {
    "name": "name",
    "description": "description",
    "prompt": "prompt",
    "tools": "tools",
    "disallowedTools": "disallowed_tools",
    "disallowed_tools": "disallowed_tools",
    "permission": "permission",
    "model": "model",
    "recursive": "recursive",
    "disable": "disabled",
    "maxTurns": "max_turns",
    "max_turns": "max_turns",
    "steps": "max_turns",
    "maxSteps": "max_turns",
    "timeout": "timeout",
    "timeout_mins": "timeout_mins",
}
"""Supported keys, and the field of each."""

MISSPELLINGS = {
    "allowedtools": "tools",
    "disallowedtools": "disallowed_tools",
    **{spelling.replace("_", "").lower(): field for spelling, field in FIELDS.items()},
}
"""The same, by the key in lower case without hyphens, underscores and spaces."""

CARRIED = frozenset(
    {
        "permissionMode",
        "skills",
        "mcpServers",
        "mcp_servers",
        "mcp-servers",
        "hooks",
        "memory",
        "background",
        "isolation",
        "effort",
        "color",
        "initialPrompt",
        "autoCompactWindow",
        "omitClaudeMd",
        "mode",
        "variant",
        "temperature",
        "top_p",
        "hidden",
        "options",
        "kind",
        "display_name",
        "readonly",
        "is_background",
        "agent_card_url",
        "agent_card_json",
        "auth",
        "target",
        "infer",
        "handoffs",
        "user-invocable",
        "disable-model-invocation",
        "argument-hint",
    }
)
"""Keys of other programs: kept unchanged, not used."""

DECORATION = frozenset(
    {
        "category",
        "version",
        "author",
        "tags",
        "priority",
        "title",
        "icon",
        "emoji",
        "vibe",
        "license",
        "id",
        "type",
        "agent-type",
        "role",
        "status",
        "domain",
        "tier",
        "phase",
        "team",
        "capabilities",
        "specialization",
        "expertise",
        "triggers",
        "proactive",
        "dependencies",
        "metadata",
        "when_to_use",
        "whenToUse",
        "keywords",
        "created",
        "updated",
        "last_updated",
        "date",
        "examples",
        "compatibility",
    }
)
"""Informal keys; they end the value above them but do not make a file a definition."""

TEXT_FIELDS = frozenset({"description", "prompt"})
"""Fields with prose: it may have many lines, and `#` in it is text."""

SPEAKERS = frozenset({"user", "assistant", "human", "User", "Assistant", "Human", "Context", "Example", "Examples"})
"""Labels of an example dialogue, which look like keys in many descriptions."""


def field_of(key: str) -> str | None:
    """The field of a key, also of a misspelled one."""
    return FIELDS.get(key) or MISSPELLINGS.get(key.lower().replace("-", "").replace("_", "").replace(" ", ""))


def spelling_of(field: str) -> str:
    """The usual key of a field."""
    return next(key for key, filled in FIELDS.items() if filled == field)


def key_of(line: str) -> str | None:
    """The key at the start of a line, known or not."""
    key, colon, rest = line.partition(":")
    if not colon or len(key) > 64 or key[:1].isspace():
        return None
    # YAML needs a space after the colon; `name:porter` is accepted too.
    if rest and not rest[0].isspace() and key not in FIELDS:
        return None
    key = key.strip().strip("\"'")
    return key if key.replace("-", "").replace("_", "").isalnum() else None


def is_agent_key(line: str) -> bool:
    """Whether the line has a key that only agent definitions have."""
    key = key_of(line)
    return key is not None and (field_of(key) is not None or key in CARRIED)


def is_known_key(line: str) -> bool:
    """Whether the line has a known key in its exact spelling."""
    key = key_of(line)
    return key is not None and (key in FIELDS or key in CARRIED or key in DECORATION)
