"""`deputy errors`: what went wrong lately, each kind of error once."""

from __future__ import annotations

from typing import Any

import click

from deputy.interfaces.cli.journal import open_journal
from deputy.interfaces.cli.show import show, show_json
from deputy.interfaces.plain import one_line


@click.command(epilog="\b\nExamples:\n  deputy errors\n  deputy errors --limit 5 --json")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The latest so many.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(limit: int, as_json: bool) -> None:
    """Show the errors that delegations met, the latest first."""
    from deputy.journal.errors_log import form, read

    with open_journal() as reader:
        logged = [] if reader is None else [form(error) for error in read(reader, limit)]
    if as_json:
        show_json({"errors": logged})
    elif logged:
        show("\n".join(_line(error) for error in logged))
    else:
        click.echo("No errors.", err=True)


def _line(error: dict[str, Any]) -> str:
    where = error["context"].session_id or "-"
    kind = f"{error['type']}/{error['code']}" if error["code"] else error["type"]
    what = one_line(error["message"], 100)
    return f"{error['last_at']}  {error['count']}×  {error['severity']}  {kind}  {where}  {what}"
