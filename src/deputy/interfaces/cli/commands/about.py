"""`deputy help` and `deputy version`."""

from __future__ import annotations

import platform
from typing import Any

import click

from deputy import __version__
from deputy.interfaces.cli import deputy
from deputy.interfaces.cli.console import Console, show, show_json, with_console


@click.command("help", epilog="\b\nExamples:\n  deputy help\n  deputy help ask\n  deputy help task add --json")
@click.argument("words", nargs=-1, metavar="[COMMAND]")
@with_console("Print usage, options and text as JSON.")
def help_(console: Console, words: tuple[str, ...]) -> None:
    """Show the help of Deputy or of one command."""
    context = click.get_current_context().find_root()
    command: click.Command = deputy
    for word in words:
        if not isinstance(command, click.Group):
            raise click.UsageError(f"{context.command_path} has no command {word!r}.", context)
        _, found, _ = command.resolve_command(context, [word])
        command = command if found is None else found
        context = click.Context(command, parent=context, info_name=word)
    if console.as_json:
        show_json(_form(command, context))
    else:
        show(command.get_help(context))


def _form(command: click.Command, context: click.Context) -> dict[str, Any]:
    options = [one for one in command.params if isinstance(one, click.Option)]
    return {
        "command": context.command_path,
        "usage": command.get_usage(context).removeprefix("Usage: "),
        "text": command.help,
        "options": [{"names": [*one.opts, *one.secondary_opts], "text": one.help} for one in options],
        "commands": command.list_commands(context) if isinstance(command, click.Group) else [],
    }


@click.command(epilog="\b\nExamples:\n  deputy version\n  deputy version --json")
@with_console()
def version(console: Console) -> None:
    """Show the version."""
    python = platform.python_version()
    console.show({"version": __version__, "python": python}, f"deputy {__version__} (Python {python})")


COMMANDS = {"help": help_, "version": version}
