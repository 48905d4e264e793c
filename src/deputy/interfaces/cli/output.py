"""How results reach a person or a program: safe text for terminals, JSON for pipes."""

from __future__ import annotations

from typing import Any

import click

from deputy.interfaces.text_lines import outgoing_json, plain, terminal_width


def show(text: str) -> None:
    """Print text that may come from a model, a file or another agent."""
    click.echo(plain(text))


def show_json(value: Any) -> None:
    """Print a value as indented JSON without secrets, the form every `--json` has."""
    click.echo(outgoing_json(value, indent=2))


def fitted(line: str) -> str:
    """A line as it is where the terminal is wide enough, else broken, between words where that can be."""
    import textwrap

    width = terminal_width()
    if len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip(" "))]
    text = " ".join(plain(line).split())
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=f"{indent}  ")
