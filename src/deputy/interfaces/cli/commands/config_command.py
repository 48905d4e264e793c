"""`deputy config`: show the settings in force, or edit a settings file."""

from __future__ import annotations

from pathlib import Path

import click

from deputy.core.errors import UsageError
from deputy.interfaces.cli.console import Console, note, with_console
from deputy.interfaces.text_lines import one_line, page_width

EXAMPLES = """\b
Examples:
  deputy config                  the same as: deputy config show
  deputy config show --json
  deputy config edit             your own file, for all projects
  deputy config edit --project   the deputy.toml of this project

\b
A project can only make settings stricter. `deputy config show` lists every
setting; `deputy init` writes a first file."""

_NEW = "# Settings of Deputy: `deputy config` lists all of them, and shows what is in force.\n"


@click.group("config", epilog=EXAMPLES, invoke_without_command=True)
@with_console()
def config(console: Console) -> None:
    """Show the settings in force, or edit your own."""
    if click.get_current_context().invoked_subcommand is None:
        _show(console)


@config.command("show")
@with_console()
def show_(console: Console) -> None:
    """Show each setting, its value, and the file it comes from."""
    _show(console)


def _show(console: Console) -> None:
    from msgspec import json, to_builtins

    from deputy.config import project_file, user_file
    from deputy.config.setting_sources import settings_in_force

    files = {"yours": user_file(), "project": project_file(".")}
    settings = settings_in_force()
    lines = [f"{name:8}  {path}{'' if Path(path).exists() else ' (no file)'}" for name, path in files.items()]
    lines.append("")
    for one in settings:
        start = f"{one.source:8}  {one.key:20}  "
        lines.append(start + one_line(json.encode(one.value).decode(), page_width() - len(start)))
    console.show({"files": files, "settings": to_builtins(settings)}, lines)


@config.command("edit")
@click.option("--project", "is_project", is_flag=True, help="Edit the deputy.toml of this project instead.")
@with_console("Print the path of the file as JSON.")
def edit(console: Console, is_project: bool) -> None:
    """Open a settings file in your editor, and check it afterwards.

    The editor is VISUAL or EDITOR. A file that does not exist is created.
    """
    from deputy.config import load_effective_settings, project_file, user_file
    from deputy.interfaces.cli.file_edit import FileEdit, read_user_file
    from deputy.interfaces.cli.terminal_prompt import can_ask

    if not can_ask():
        raise UsageError("config edit", "no terminal", "run it at a terminal, or change the file with a program")
    path = project_file(".") if is_project else user_file()
    if read_user_file(path) is None:
        FileEdit(path=path, before=None, after=_NEW).write()
    try:
        click.edit(filename=path)
    except click.ClickException as error:
        raise UsageError("EDITOR", path, f"{error.format_message()}; set EDITOR to your editor") from error
    load_effective_settings(".")
    console.show({"file": path}, path)
    note("The settings are valid.")


COMMANDS = {"config": config}
