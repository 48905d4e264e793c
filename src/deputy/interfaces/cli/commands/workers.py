"""`deputy workers`: list the workers of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from deputy.interfaces.cli.commands.store import store_home
from deputy.interfaces.cli.console import Console, note, with_console
from deputy.interfaces.text_lines import one_line

if TYPE_CHECKING:
    from deputy.stores import StoreWorker

_HEADINGS = ("HOST", "PROCESS", "LABELS", "RUNS", "SLOTS", "STATUS", "HEARTBEAT", "VERSION")
_WIDTH = 60


@click.command(epilog="\b\nExamples:\n  deputy workers\n  deputy workers --json")
@with_console()
def command(console: Console) -> None:
    """List the workers of the store.

    RUNS counts the runs that a worker holds; a run that only waits for a subagent takes no slot. A draining worker is
    about to end and takes no more runs. A worker without a heartbeat for 15 seconds is not listed; other workers take
    over its runs. `deputy doctor` compares versions, clocks and keys of the workers; `--json` has them too.
    """
    from deputy.stores import read_workers

    found = read_workers(store_home())
    if console.as_json:
        console.show({"workers": [_form(one) for one in found]}, "")
    elif found:
        console.show(None, _table([_row(one) for one in found]))
    else:
        note("No worker. Start one: deputy worker")


def _form(one: StoreWorker) -> dict[str, Any]:
    return {**structs.asdict(one), "labels": list(one.labels), "keys": list(one.keys)}


def _row(one: StoreWorker) -> tuple[str, ...]:
    return (
        one.host,
        one.pid,
        ",".join(one.labels) or "-",
        str(one.held),
        str(one.slots),
        "draining" if one.is_draining else "ready",
        f"{one.silent_seconds:.0f} s ago",
        one.version,
    )


def _table(rows: list[tuple[str, ...]]) -> str:
    # The texts are those of other logins: none may begin a line.
    whole = [_HEADINGS, *([one_line(cell, _WIDTH) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in whole)
    return "\n".join(line.rstrip() for line in lines)
