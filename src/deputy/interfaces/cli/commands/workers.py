"""`deputy workers`: list the workers of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from deputy.interfaces.cli.commands.store import store_home
from deputy.interfaces.cli.console import Console, note, with_console

if TYPE_CHECKING:
    from deputy.stores import StoreWorker

_HEADINGS = ("HOST", "PROCESS", "LABELS", "RUNS", "SLOTS", "STATUS", "HEARTBEAT", "VERSION")


@click.command(epilog="\b\nExamples:\n  deputy workers\n  deputy workers --json")
@with_console()
def command(console: Console) -> None:
    """List the workers of the store.

    RUNS are those that a worker holds; those that only wait for a subagent take no slot. A worker that leaves is
    draining: it takes no further run. One without a heartbeat for 15 seconds is not listed: others take its runs over.
    `deputy doctor` compares their versions, clocks and keys; `--json` has them too.
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
    whole = [_HEADINGS, *rows]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in whole)
    return "\n".join(line.rstrip() for line in lines)
