"""Find the front matter of a definition, also when its delimiters are missing or late; and its keys."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.agents.definition import DefinitionRemark

if TYPE_CHECKING:
    from collections.abc import Sequence

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

CARRIED = frozenset((
    "permissionMode", "skills", "mcpServers", "mcp_servers", "mcp-servers", "hooks", "memory", "background",
    "isolation", "effort", "color", "initialPrompt", "autoCompactWindow", "omitClaudeMd", "mode", "variant",
    "temperature", "top_p", "hidden", "options", "kind", "display_name", "readonly", "is_background",
    "agent_card_url", "agent_card_json", "auth", "target", "infer", "handoffs", "user-invocable",
    "disable-model-invocation", "argument-hint",
))  # fmt: skip
"""Keys of other programs: kept unchanged, not used."""

DECORATION = frozenset((
    "category", "version", "author", "tags", "priority", "title", "icon", "emoji", "vibe", "license", "id",
    "type", "agent-type", "role", "status", "domain", "tier", "phase", "team", "capabilities", "specialization",
    "expertise", "triggers", "proactive", "dependencies", "metadata", "when_to_use", "whenToUse", "keywords",
    "created", "updated", "last_updated", "date", "examples", "compatibility",
))  # fmt: skip
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


CODE_FENCES = ("```", "~~~")
BLANK_LINES = "blank lines before the front matter were skipped"
HEADINGS = ("# ", "## ")


class FrontMatter(Struct, frozen=True, kw_only=True):
    """The lines of the front matter, and the body below."""

    lines: tuple[str, ...]
    first_line: int
    """The line number of the first line, from 1."""
    body: str
    remarks: tuple[DefinitionRemark, ...] = ()


def split(text: str) -> FrontMatter | None:
    """Split a definition into front matter and body; None without front matter."""
    lines = text.split("\n")
    rules = [number for number, line in enumerate(lines) if _is_rule(line)]
    opening = _opening(lines, rules)
    if opening is not None:
        return _cut(lines, opening, next((rule for rule in rules if rule > opening), None))
    top = _first_text(lines)
    if top < len(lines) and is_agent_key(lines[top]) and is_known_key(lines[top]):
        closing = rules[0] if rules and rules[0] <= _end_of_keys(lines, top) else None
        unopened = DefinitionRemark(top + 1, "the line '---' that opens the front matter is missing")
        return _cut(lines, top - 1, closing, unopened)
    return None


def _opening(lines: Sequence[str], rules: Sequence[int]) -> int | None:
    """The line that opens the front matter: the first `---` above keys, else the one at the top of the file."""
    top = _first_text(lines)
    opens_file = top < len(lines) and _is_rule(lines[top])
    code_opens_file = top < len(lines) and lines[top].startswith(CODE_FENCES)
    in_code, seen = False, 0
    for rule, following in pairwise([*rules, len(lines)]):
        in_code ^= sum(line.startswith(CODE_FENCES) for line in lines[seen:rule]) % 2 == 1
        # A definition in a code block is an example, unless the code block is the whole file.
        is_example = in_code and not (code_opens_file and rule == rules[0] and not any(lines[top + 1 : rule]))
        inside = lines[rule + 1 : following]
        if (rule == top and any(map(is_agent_key, inside))) or (not is_example and _opens_with_key(inside)):
            return rule
        seen = rule
    return top if opens_file else None


def _opens_with_key(lines: Sequence[str]) -> bool:
    first = next((line for line in lines if line.strip()), "")
    return key_of(first) is not None and any(key_of(line) in {"name", "description"} for line in lines)


def _cut(lines: Sequence[str], opening: int, closing: int | None, *remarks: DefinitionRemark) -> FrontMatter:
    noted = list(remarks)
    skipped = [line for line in lines[: max(opening, 0)] if line.strip()]
    if opening > 0:
        noted.append(DefinitionRemark(1, "text before the front matter is ignored" if skipped else BLANK_LINES))
    end = _end(lines, opening + 1, closing)
    rest = lines[end:]
    if end == closing:
        rest = lines[end + 1 :]
    else:
        noted.append(
            DefinitionRemark(end, "the line '---' that closes the front matter is missing; the front matter ends here")
        )
    body = "\n".join(rest).strip()
    if len(skipped) == 1 and skipped[0].startswith(CODE_FENCES):
        body = body.removesuffix(skipped[0][:3]).rstrip()
    return FrontMatter(lines=tuple(lines[opening + 1 : end]), first_line=opening + 2, body=body, remarks=tuple(noted))


def _end(lines: Sequence[str], start: int, closing: int | None) -> int:
    """The end of the front matter: its `---` may be missing, and the next one may be a rule in the body."""
    if closing is None:
        return _end_of_keys(lines, start)
    last_key = max((number for number in range(start, closing) if is_known_key(lines[number])), default=closing)
    for number in range(last_key + 1, closing):
        if lines[number].startswith(HEADINGS) and not lines[number - 1].strip():
            return number - 1 if any(map(_is_prose, lines[number:closing])) else closing
    return closing


def _end_of_keys(lines: Sequence[str], start: int) -> int:
    """The first gap of blank lines and headings before a line that cannot be front matter."""
    gap: int | None = None
    for number in range(start, len(lines)):
        line = lines[number]
        if not line.strip() or line.startswith("#"):
            gap = number if gap is None else gap
        elif gap is not None and _is_prose(line) and not line.startswith("<"):
            return gap
        else:
            gap = None
    return len(lines) if gap is None else gap


def _is_prose(line: str) -> bool:
    """Whether a line is neither a key nor a value nor a comment."""
    is_key = is_known_key(line) or key_of(line) in SPEAKERS
    return not (is_key or not line.strip() or line[0].isspace() or line.startswith("#"))


def _first_text(lines: Sequence[str]) -> int:
    return next((number for number, line in enumerate(lines) if line.strip()), len(lines))


def _is_rule(line: str) -> bool:
    return line.startswith("---") and not line.strip("- \t")
