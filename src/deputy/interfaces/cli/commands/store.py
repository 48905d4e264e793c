"""`deputy store migrate`, `status` and `roles`: the Postgres store of many machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from deputy.core.errors import Unquoted, UsageError
from deputy.interfaces.cli.console import Console, counted, with_console
from deputy.interfaces.text_lines import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.stores import StoreReport

_WIDTH = 60


@click.group(epilog="\b\nExamples:\n  DEPUTY_STORE=postgres://me@db/deputy deputy store migrate\n  deputy store status")
def command() -> None:
    """Prepare or check a Postgres store, shared by machines.

    DEPUTY_STORE, or `url` in the table [store] of your config, names it. Without one, the journal is a file in your
    home, and there is nothing to prepare.
    """


@command.command()
@with_console()
def migrate(console: Console) -> None:
    """Create or upgrade the tables.

    Also run it after a restore from a backup.
    """
    from deputy.stores import dispatch_name, migrate_store

    location, before, after = migrate_store(store_home())
    done = "Nothing had to change." if before == after else "All machines can use the store now."
    if dispatch_name():
        done += " The queues of workers are ready."
    form = {"store": location, "version_before": before, "version": after}
    console.show(form, f"{location}: the tables have version {after}. {done}")


@command.command()
@with_console()
def status(console: Console) -> None:
    """Show the store, its tables, and the processes that hold runs."""
    from deputy.stores import read_store

    report = read_store(store_home())
    console.show(_form(report), _lines(report))


@command.command()
@with_console()
def roles(console: Console) -> None:
    """Print the roles and their rights as SQL.

    An administrator runs it once; a comment there says how to give a role to a login.
    """
    from deputy.stores import store_roles

    console.show({"sql": store_roles()}, store_roles().rstrip())


def store_home() -> Any:
    """The home of a Deputy with a store; a UsageError without one."""
    from deputy.journal.home import home_path
    from deputy.stores import store_url

    if not store_url():
        raise UsageError(
            "store", Unquoted("none; the journal is a file in your home"), "set DEPUTY_STORE=postgres://USER@HOST/NAME"
        )
    return home_path()


def _form(report: StoreReport) -> dict[str, Any]:
    return {
        "store": report.location,
        "version": report.version,
        "known_version": report.known_version,
        "live_runs": report.live,
        "runs": report.runs,
        "size_bytes": report.size,
        "processes": [structs.asdict(one) for one in report.processes],
    }


def _lines(report: StoreReport) -> Iterator[str]:
    yield f"store      {report.location}"
    yield f"tables     version {report.version}; this Deputy knows up to {report.known_version}"
    yield f"runs       {report.runs}, {report.live} of them live; {report.size / 1e6:.1f} MB"
    if not report.processes:
        yield "processes  none holds a run"
    for at, one in enumerate(report.processes):
        name = "processes" if at == 0 else ""
        seen = f"heartbeat {one.silent_seconds:.0f} s ago"
        # The texts are those of other logins: none may begin a line.
        host, version = one_line(one.host, _WIDTH), one_line(one.version, _WIDTH)
        yield f"{name:<9}  {host} process {one.pid}: {counted(one.held, 'run')}, {seen}, version {version}"
