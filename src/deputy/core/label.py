"""Labels: the names that tasks have in views and results, `[label]` on one line."""

from __future__ import annotations

from deputy.core.terminal_text import plain

MAX_LABEL = 32
LABEL_RULE = f"a text of 1 to {MAX_LABEL} characters on one line, without brackets and invisible characters"
_BRACKETS = {ord(letter): "(" if letter in "[［" else ")" for letter in "[]［］"}


def read_label(value: object) -> tuple[str | None, str]:
    """A label as it was given and "", or None and what a label must be."""
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_LABEL:
        return None, LABEL_RULE
    is_plain = plain(value) == value and value.translate(_BRACKETS) == value and not {"\n", "\t"} & set(value)
    return (value, "") if is_plain else (None, LABEL_RULE)


def cleaned_label(name: str) -> str:
    """A label made of a name that was not given as one: an agent, a type of subtask."""
    return " ".join(plain(name).translate(_BRACKETS).split())
