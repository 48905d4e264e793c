"""Open the journal for commands that read it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import click

from deputy.core.errors import StorageError, UnknownRun
from deputy.interfaces.safe_text import print_error
from deputy.journal.home import home_path
from deputy.journal.sqlite.reader import JournalReader

if TYPE_CHECKING:
    from collections.abc import Generator

NOTHING_FOUND = 3


@contextmanager
def open_journal() -> Generator[JournalReader | None]:
    """Open the journal in this user's home, or yield None where there is none; creates nothing."""
    reader = JournalReader.open_any(home_path())
    if reader is None:
        yield None
        return
    with reader:
        is_shown = _warn_of_damage(reader)
        expire_overdue(reader)
        expire_orphaned(reader)
        try:
            yield reader
        finally:
            # Damage is also found while records are read.
            if not is_shown:
                _warn_of_damage(reader)


def _warn_of_damage(reader: JournalReader) -> bool:
    if reader.damage:
        click.echo(f"deputy: {reader.path}: {reader.damage}; showing what can still be read", err=True)
    return bool(reader.damage)


def expire_overdue(reader: JournalReader) -> None:
    """End runs past their deadline, of any process, and deny approvals past theirs; mostly this only reads."""
    from deputy.journal.queries import out_of_time

    late, unanswered = out_of_time(reader, reader.now())
    if not late and not unanswered:
        return
    from deputy.journal.expire import expire_overdue, expire_unanswered
    from deputy.processes.orphans import environment_tag, kill_orphans

    folder = reader.path.parent
    try:
        if unanswered:
            expire_unanswered(folder, unanswered)
        ended = expire_overdue(folder, late) if late else []
    except StorageError as error:
        click.echo(f"deputy: cannot end overdue runs: {print_error(error)}", err=True)
        return
    for state in ended:
        kill_orphans(environment_tag(state.run))


def expire_orphaned(reader: JournalReader) -> None:
    """Kill programs whose Deputy process has died."""
    from deputy.journal.queries import orphaned

    runs = orphaned(reader)
    if not runs:
        return
    from deputy.processes.orphans import environment_tag, kill_orphans

    kill_orphans(*map(environment_tag, runs))


def not_found(run: str) -> NoReturn:
    """Print that the run does not exist, and exit with 3."""
    click.echo(f"deputy: {print_error(UnknownRun(run))}", err=True)
    sys.exit(NOTHING_FOUND)
