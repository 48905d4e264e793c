"""Labels of tasks in views and results: `[label]` on one line."""

from __future__ import annotations

from deputy.core.terminal_text import plain

MAX_LABEL = 32
LABEL_RULE = f"a string of 1 to {MAX_LABEL} characters on one line, without brackets and invisible characters"
_BRACKETS = {ord(letter): "(" if letter in "[［" else ")" for letter in "[]［］"}


def read_label(value: object) -> tuple[str | None, str]:
    """The label and "", or None and the rule for labels."""
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_LABEL:
        return None, LABEL_RULE
    is_plain = plain(value) == value and value.translate(_BRACKETS) == value and not {"\n", "\t"} & set(value)
    return (value, "") if is_plain else (None, LABEL_RULE)


def cleaned_label(name: str) -> str:
    """A label made from another name, such as an agent or a subtask type."""
    return " ".join(plain(name).translate(_BRACKETS).split())
