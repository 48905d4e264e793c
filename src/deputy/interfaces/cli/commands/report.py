"""`deputy report ID`: one HTML file with everything about a run, to read and to keep."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from deputy.core.errors import UsageError
from deputy.interfaces.cli.console import Console, counted, open_run, run_argument, with_console

EXAMPLES = """\b
Examples:
  deputy report last
  deputy report sess_1763190000_x7k2ab -o login-review.html
  deputy report sess_1763190000_x7k2ab -o - > report.html

\b
The file has the tree, the timeline, and of each run the prompt, report,
notes, errors and the folded transcript. It needs no other file, loads
nothing, runs no scripts, and has no secrets that Deputy recognises. Only
you can read it.

\b
Exit codes:
  0 written   2 the file already exists   3 no such run"""


@click.command(epilog=EXAMPLES)
@run_argument()
@click.option("-o", "--output", metavar="FILE|-", help="The file; by default ./ID.html. - is standard output.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@with_console("Print the name and size of the file.")
def command(console: Console, run: str, output: str | None, force: bool) -> None:
    """Write a run and its tree as one HTML page."""
    from deputy.interfaces.report.run_report import write_report
    from deputy.journal.transcript import safe_id

    if output == "-" and console.as_json:
        raise UsageError("--output", output, "standard output has the JSON; name a file")
    path = Path(f"{safe_id(run)}.html" if output is None else output)
    if output != "-" and not force and path.exists():
        raise UsageError("--output", str(path), "it already exists; name another file, or pass --force")
    with open_run(run) as (queries, state):
        page, runs = write_report(queries, state, time.time())
    if output == "-":
        sys.stdout.buffer.write(page)
        return
    _write(path, page)
    form = {"session_id": run, "file": str(path), "runs": runs, "bytes": len(page)}
    console.show(form, f"{path}: {counted(runs, 'run')}, {max(1, len(page) // 1024):,} KiB")


def _write(path: Path, page: bytes) -> None:
    from deputy.journal.home import write_whole

    if not path.parent.is_dir():
        raise UsageError("--output", str(path), "its folder does not exist; create it first")
    write_whole(path, page)
