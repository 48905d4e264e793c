"""What the commands that read the journal share: opening it, and finding a run in it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import click

from deputy.core.errors import StorageError, UnknownRun
from deputy.interfaces.telling import tell
from deputy.journal.home import home_path
from deputy.journal.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Generator

NOTHING_FOUND = 3


@contextmanager
def open_journal() -> Generator[Reader | None]:
    """The journal of this user's home, or None where there is none; nothing is made."""
    reader = Reader.open_any(home_path())
    if reader is None:
        yield None
        return
    with reader:
        is_told = _tell_damage(reader)
        end_what_is_late(reader)
        end_what_is_orphaned(reader)
        try:
            yield reader
        finally:
            # What nobody has looked at before may turn out to be damaged only now.
            if not is_told:
                _tell_damage(reader)


def _tell_damage(reader: Reader) -> bool:
    if reader.damage:
        click.echo(f"deputy: {reader.path}: {reader.damage}; this is what can still be read", err=True)
    return bool(reader.damage)


def end_what_is_late(reader: Reader) -> None:
    """End the runs past their deadline, whoever started them, and refuse what nobody approved in time.

    Every command that looks does. Mostly it only reads.
    """
    from deputy.journal.registry import out_of_time

    late, unanswered = out_of_time(reader, reader.now())
    if not late and not unanswered:
        return
    from deputy.journal.monitor import end_late, end_unanswered
    from deputy.processes.sweep import sweep, tag_of

    folder = reader.path.parent
    try:
        if unanswered:
            end_unanswered(folder, unanswered)
        ended = end_late(folder, late) if late else []
    except StorageError as error:
        click.echo(f"deputy: what is out of time could not be ended: {tell(error)}", err=True)
        return
    for state in ended:
        sweep(tag_of(state.run))


def end_what_is_orphaned(reader: Reader) -> None:
    """End what commands of processes that died have left running: every command that looks does."""
    from deputy.journal.registry import orphaned

    runs = orphaned(reader)
    if not runs:
        return
    from deputy.processes.sweep import sweep, tag_of

    sweep(*map(tag_of, runs))


def not_found(run: str) -> NoReturn:
    """Say that there is no such run, and exit as commands do that find nothing."""
    click.echo(f"deputy: {tell(UnknownRun(run))}", err=True)
    sys.exit(NOTHING_FOUND)
