"""Text files for the fake programs, without pathlib, which takes them milliseconds to import."""

from __future__ import annotations

import os


def read_text(path: str, default: str) -> str:
    """The text of a file, or the default where there is none."""
    if not os.path.exists(path):
        return default
    with open(path) as file:
        return file.read()


def write_text(path: str, text: str, mode: str = "w") -> None:
    """Write or, with mode `a`, append a text."""
    with open(path, mode) as file:
        file.write(text)
