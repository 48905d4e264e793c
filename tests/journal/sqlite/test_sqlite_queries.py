import asyncio
import sqlite3
import time
from pathlib import Path

import pytest
from msgspec import json
from tests.journal.conftest import fill

from deputy.core.events import Noted, RunOpened
from deputy.core.progress import Progress
from deputy.core.request import Lineage
from deputy.journal.process_identity import this_process
from deputy.journal.retention import prune
from deputy.journal.sqlite import file_repair
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import STALE_SECONDS, SqliteQueries
from deputy.journal.sqlite.sqlite_store import SqliteStore

RUN = "sess_1_aaaaaa"


def queries_of(home: Path) -> SqliteQueries:
    queries = SqliteQueries.open(home)
    assert queries is not None
    return queries


def execute(home: Path, query: str, *values: object) -> None:
    with sqlite3.connect(home / "journal.db") as connection:
        connection.execute(query, values)
    connection.close()


def show(home: Path, *events: Progress) -> None:
    async def main() -> None:
        async with SqliteJournal(home, fsync="off") as journal:
            lease = await journal.begin(RUN, RunOpened(lineage=Lineage.root(RUN)))
            assert lease is not None
            for event in events:
                journal.show_progress(RUN, json.encode(event))
            await journal.append(lease, "x", Noted(content=""))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("silent_seconds", "is_orphaned"), [(0.0, False), (STALE_SECONDS / 2, False), (STALE_SECONDS + 1, True)]
)
def test_a_holder_without_a_heartbeat_for_too_long_is_orphaned(home: Path, silent_seconds: float, is_orphaned: bool):
    asyncio.run(fill(home, RUN, 1))
    owner = this_process().name
    execute(home, "UPDATE leases SET owner = ?", owner)
    execute(home, "INSERT OR REPLACE INTO owners VALUES (?, ?)", owner, time.monotonic() - silent_seconds)
    with queries_of(home) as queries:
        assert queries.holders()[RUN].is_orphaned == is_orphaned
        assert not queries.holders()[RUN].is_gone


def test_a_holder_without_a_heartbeat_at_all_is_orphaned(home: Path):
    asyncio.run(fill(home, RUN, 1))
    execute(home, "UPDATE leases SET owner = ?", this_process().name)
    with queries_of(home) as queries:
        assert queries.holders()[RUN].is_orphaned


def test_a_prune_voids_a_cursor_although_its_ids_are_used_again(home: Path):
    asyncio.run(fill(home, RUN, 3, ended=True))
    with queries_of(home) as queries:
        cursor = queries.cursor()
        assert prune(SqliteStore(home), time.time() + 60)
        asyncio.run(fill(home, "sess_1_second", 3, ended=True))
        after = queries.cursor()
        assert (after.record, after.progress) == (cursor.record, cursor.progress)
        assert queries.follow(cursor).is_reset


def test_a_repaired_journal_continues_no_cursor(home: Path):
    asyncio.run(fill(home, RUN, 3, ended=True))
    with queries_of(home) as queries:
        cursor = queries.cursor()
    file_repair.repair(home)
    with queries_of(home) as queries:
        assert queries.cursor().record == cursor.record
        assert queries.follow(cursor).is_reset


def test_a_journal_that_lost_its_end_continues_no_cursor(home: Path):
    asyncio.run(fill(home, RUN, 3))
    with queries_of(home) as queries:
        cursor = queries.cursor()
        execute(home, "DELETE FROM events WHERE id = ?", cursor.record)
        assert queries.follow(cursor).is_reset
