"""Prompts, one .md file each."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent


@cache
def prompt(name: str) -> str:
    """The text of a prompt, as a format string."""
    return _FOLDER.joinpath(f"{name}.md").read_text("utf-8").strip()
