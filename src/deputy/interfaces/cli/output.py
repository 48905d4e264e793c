"""Print results: safe text for terminals, JSON for programs."""

from __future__ import annotations

from typing import Any

import click

from deputy.interfaces.text_lines import outgoing_json, plain, terminal_width


def show(text: str) -> None:
    """Print text that may come from a model, a file or another agent."""
    click.echo(plain(text))


def show_json(value: Any) -> None:
    """Print a value as indented JSON with secrets redacted: the form of every `--json`."""
    click.echo(outgoing_json(value, indent=2))


def fitted(line: str) -> str:
    """The line, wrapped at words when it is wider than the terminal."""
    import textwrap

    width = terminal_width()
    if len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip(" "))]
    text = " ".join(plain(line).split())
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=f"{indent}  ")
