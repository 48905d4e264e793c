"""Prompts, one .md file each."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def prompt(name: str) -> str:
    """The text of a prompt, as a format string."""
    return files(__name__).joinpath(f"{name}.md").read_text("utf-8").strip()
