"""How results reach a person or a program: safe text for terminals, JSON for pipes."""

from __future__ import annotations

from typing import Any

import click

from deputy.interfaces.plain import plain


def show(text: str) -> None:
    """Print text that may come from a model, a file or another agent."""
    click.echo(plain(text))


def show_json(value: Any) -> None:
    """Print a value as indented JSON, the form every `--json` has."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))
