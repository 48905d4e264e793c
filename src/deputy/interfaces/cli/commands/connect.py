"""`deputy connect`: add Deputy's tools to another agent, or remove them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from deputy.core.errors import Unquoted, UsageError
from deputy.interfaces.cli.console import REJECTED, Console, RunOptions, fitted, note, with_console, with_run_options
from deputy.interfaces.mcp_clients import CLIENTS, McpClient, own_command, require_sdk, skill_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.interfaces.cli.file_edit import FileEdit

EXAMPLES = """\b
Examples:
  deputy connect claude --dry-run       show the change, write nothing
  deputy connect claude                 show it, ask, write it
  deputy connect codex --yes --unattended
  deputy connect opencode --model sonnet --allow Edit
  deputy connect gemini --remove

Writes an entry for the MCP server, with the absolute path of this `deputy`, and a skill that says when to delegate.
The old files are kept as .bak. For other clients, `deputy mcp --json` prints the entry to paste.

\b
Exit codes:
  0 written, or nothing to change   6 not written"""


@click.command(epilog=EXAMPLES)
@click.argument("client", type=click.Choice(list(CLIENTS)))
@click.option("--remove", is_flag=True, help="Remove the entry and the skill.")
@click.option("--unattended", is_flag=True, help="Let subagents start without asking (deputy mcp --yes).")
@click.option("--dry-run", is_flag=True, help="Show the change, and write nothing.")
@with_run_options(
    "model",
    "allow",
    "yes",
    model="The model of the subagents; by default the one of your config.",
    allow="Let tasks name this tool; repeat it for more.",
    yes="Write without asking.",
)
@with_console()
def command(
    console: Console, client: str, *, remove: bool, unattended: bool, dry_run: bool, options: RunOptions
) -> int:
    """Add Deputy's tools to Claude Code, Codex, opencode or Gemini."""
    from deputy.config.toml_edit import CannotEdit
    from deputy.interfaces.cli.file_edit import apply_edits

    known = CLIENTS[client]
    config = str(known.config_path(os.environ))
    if not remove:
        require_sdk()
    flags = ["--model", options.model] if options.model else []
    flags += [part for name in options.allow for part in ("--allow", name)]
    start = own_command("mcp", *flags, *(["--yes"] if unattended else []))
    entry = known.entry(start, [] if known.passes == "all" else _variables())
    try:
        edits = list(_removal(known, entry) if remove else _connection(known, entry))
    except CannotEdit as error:
        raise UsageError(config, Unquoted("a file that cannot be changed"), _by_hand(known, entry, error)) from error
    result, backups = apply_edits(edits, yes=options.yes, dry_run=dry_run)
    form = {
        "client": client,
        "result": result,
        "removed": remove,
        "files": [edit.path for edit in edits],
        "backups": backups,
        "entry": None if remove else entry,
    }
    console.show(form, _said(known, result, remove, backups))
    if result == "written" and not remove:
        _hints(known, entry)
    return REJECTED if result == "declined" else 0


def _variables() -> list[str]:
    """The variables with keys, addresses and settings that are set now; the client passes on only what is named."""
    from deputy.config import load_catalog
    from deputy.models.catalog import read_catalog
    from deputy.tools.web_search import SEARCH_KEYS

    known = ["DEPUTY_HOME", "DEPUTY_MODEL", *SEARCH_KEYS]
    for provider in read_catalog(load_catalog()).providers.values():
        known += [*provider.keys, provider.base_url_variable, provider.host_variable]
    return sorted({name for name in known if os.environ.get(name)})


def _connection(client: McpClient, entry: dict[str, Any]) -> Iterator[FileEdit]:
    from deputy.interfaces.cli.file_edit import FileEdit, read_user_file

    path, skill = str(client.config_path(os.environ)), str(client.skill_path(os.environ))
    before = read_user_file(path)
    yield FileEdit(path=path, before=before, after=client.connected(before, entry))
    yield FileEdit(path=skill, before=read_user_file(skill), after=skill_text())


def _removal(client: McpClient, entry: dict[str, Any]) -> Iterator[FileEdit]:
    from deputy.interfaces.cli.file_edit import FileEdit, read_user_file

    path, skill = str(client.config_path(os.environ)), str(client.skill_path(os.environ))
    before = read_user_file(path)
    after = None if before is None else client.disconnected(before)
    # A file that only has what `connect` writes needs no backup.
    yield FileEdit(path=path, before=before, after=after, is_kept=before != client.connected(None, entry))
    advice = read_user_file(skill)
    yield FileEdit(path=skill, before=advice, after=None, is_kept=advice != skill_text())


def _by_hand(client: McpClient, entry: dict[str, Any], error: Exception) -> str:
    import json

    return f"{error}; add by hand, at {'.'.join(client.place)}.deputy: {json.dumps(entry)}"


def _said(client: McpClient, result: str, is_removed: bool, backups: list[str]) -> Iterator[str]:
    name = client.name
    match result:
        case "written":
            yield f"Removed Deputy from {name}." if is_removed else f"Connected {name}. Start it anew to use Delegate."
        case "unchanged":
            yield f"{name} has no entry of Deputy." if is_removed else f"{name} is connected already."
        case _:
            yield "Nothing was written."
    for backup in backups:
        yield f"The file before: {backup}"


def _hints(client: McpClient, entry: dict[str, Any]) -> None:
    import shutil

    if shutil.which(client.name) is None:
        note(f"The program {client.name} was not found on PATH. Install it to use the entry.")
    if client.passes != "all":
        passed = entry.get("env_vars") or list(entry.get("env", {}))
        named = ", ".join(passed) or "none, because none with a key is set now"
        note(fitted(f"{client.name} passes on only these variables: {named}. Connect again after a new key."))
