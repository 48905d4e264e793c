"""Text of models, files and other agents without what a terminal would obey."""

from __future__ import annotations

from functools import cache


def plain(text: str) -> str:
    """The text without control characters and terminal escapes; line ends and tabs stay."""
    return text.translate(_controls())


@cache
def _controls() -> dict[int, int | None]:
    removed = [*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029]
    return {code: None for code in removed if chr(code) not in "\n\t"}
