"""What the commands that read the journal share: opening it, and finding a run in it."""

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
    """The journal of this user's home, or None where there is none; nothing is made."""
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
            # What nobody has looked at before may turn out to be damaged only now.
            if not is_shown:
                _warn_of_damage(reader)


def _warn_of_damage(reader: JournalReader) -> bool:
    if reader.damage:
        click.echo(f"deputy: {reader.path}: {reader.damage}; this is what can still be read", err=True)
    return bool(reader.damage)


def expire_overdue(reader: JournalReader) -> None:
    """End the runs past their deadline, whoever started them, and refuse what nobody approved in time.

    Every command that looks does. Mostly it only reads.
    """
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
        click.echo(f"deputy: what is out of time could not be ended: {print_error(error)}", err=True)
        return
    for state in ended:
        kill_orphans(environment_tag(state.run))


def expire_orphaned(reader: JournalReader) -> None:
    """End what commands of processes that died have left running: every command that looks does."""
    from deputy.journal.queries import orphaned

    runs = orphaned(reader)
    if not runs:
        return
    from deputy.processes.orphans import environment_tag, kill_orphans

    kill_orphans(*map(environment_tag, runs))


def not_found(run: str) -> NoReturn:
    """Say that there is no such run, and exit as commands do that find nothing."""
    click.echo(f"deputy: {print_error(UnknownRun(run))}", err=True)
    sys.exit(NOTHING_FOUND)
