"""Opens the journal's store for commands: beside `wiring.py` the only module that names an adapter."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from deputy.engine.ports import Journal
    from deputy.engine.ports.queries import Queries, RepairedJournal
    from deputy.journal.sql.sql_store import SqlStore


def find_store(folder: Path) -> SqlStore:
    """The store of the journal; nothing is opened."""
    from deputy.journal.sqlite.sqlite_store import SqliteStore

    return SqliteStore(folder)


def open_queries(folder: Path, *, is_checked: bool = True) -> Queries | None:
    """Open the journal of a home for reading; None when there is none. `is_checked`: refuse damaged tables of runs."""
    from deputy.journal.sqlite.sqlite_queries import SqliteQueries

    return SqliteQueries.open_any(folder) if is_checked else SqliteQueries.open(folder)


@asynccontextmanager
async def open_journal(folder: Path) -> AsyncGenerator[Journal[Any]]:
    """Open the journal of a home for writing, without an engine."""
    from deputy.journal.sqlite.sqlite_journal import SqliteJournal

    async with SqliteJournal(folder) as journal:
        yield journal


def repair_journal(folder: Path) -> RepairedJournal:
    """Replace a damaged journal by one of its readable rows."""
    from deputy.journal.sqlite.file_repair import repair

    return repair(folder)
