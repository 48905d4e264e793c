"""Read a template from Markdown: fields in the front matter, the prompt below."""

from __future__ import annotations

from deputy.agents.strict_yaml import LIMIT_CHARACTERS, YamlField, YamlFields, YamlRefusal, read_strictly

RULE = "---"
HOW_TO_BEGIN = "start the file with a line '---', then type: and description:, then '---', and the prompt below"


def read_markdown(text: str) -> tuple[YamlField, ...] | YamlRefusal:
    """The fields of a template with its prompt, or why it cannot be read."""
    lines = text.splitlines()
    opening = next((number for number, line in enumerate(lines) if line.strip()), None)
    if opening is None or lines[opening].rstrip() != RULE:
        return YamlRefusal(1, f"no front matter; {HOW_TO_BEGIN}")
    closing = next((number for number in range(opening + 1, len(lines)) if lines[number].rstrip() == RULE), None)
    if closing is None:
        return YamlRefusal(opening + 1, "the line '---' that closes the front matter is missing")
    front_matter = lines[opening + 1 : closing]
    if sum(map(len, front_matter)) > LIMIT_CHARACTERS:
        return YamlRefusal(opening + 1, f"the front matter is larger than {LIMIT_CHARACTERS // 1024} KiB, the limit")
    read = read_strictly(front_matter, opening + 2)
    match read:
        case YamlRefusal():
            return read
        case YamlFields(fields=fields):
            body = "\n".join(lines[closing + 1 :]).strip()
            return (*fields, YamlField("prompt", body, closing + 2)) if body else fields
