"""The writer thread: it survives what fails, and a failed commit leaves nothing behind."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from deputy.core.errors import StorageCorrupt, StorageFailed, StorageGone
from deputy.core.events import Noted, RunOpened
from deputy.core.request import Lineage
from deputy.journal.sql.transaction import Transaction
from deputy.journal.sqlite import sqlite_writer
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

RUN, OTHER = "sess_1_aaaaaa", "sess_1_bbbbbb"


def opened(run: str) -> RunOpened:
    return RunOpened(lineage=Lineage.root(run))


def test_after_a_failed_commit_the_next_one_begins_on_a_new_connection(home: Path) -> None:
    def fail(tx: Transaction) -> None:
        tx.tables.execute("DELETE FROM events")
        raise ZeroDivisionError

    def misuse(tx: Transaction) -> None:
        tx.tables.execute("DELETE FROM events")
        tx.tables.execute("SELECT ?", ())

    def lack(tx: Transaction) -> None:
        tx.tables.execute("DELETE FROM events")
        tx.tables.execute("SELECT * FROM no_such_table")

    async def main() -> None:
        async with SqliteJournal(home, fsync="off") as journal:
            lease = await journal.begin(RUN, opened(RUN))
            assert lease is not None
            with pytest.raises(ZeroDivisionError):
                await journal.transact(fail)
            with pytest.raises(sqlite3.ProgrammingError, match="bindings"):
                await journal.transact(misuse)
            with pytest.raises(StorageCorrupt, match="no_such_table"):
                await journal.transact(lack)
            await journal.append(lease, "note", Noted(content="n"))
            assert [record.key for record in await journal.records(RUN)] == ["requested", "note"]

    asyncio.run(main())


def test_what_no_caller_waits_for_any_more_is_written_all_the_same(home: Path) -> None:
    async def main() -> None:
        async with SqliteJournal(home, fsync="off") as journal:
            begun = asyncio.ensure_future(journal.begin(RUN, opened(RUN)))
            await asyncio.sleep(0)
            begun.cancel()
            other = await journal.begin(OTHER, opened(OTHER))
            assert other is not None
            assert await journal.known([RUN, OTHER]) == {RUN, OTHER}

    asyncio.run(main())


def test_an_abandoned_journal_writes_and_releases_nothing_more(home: Path) -> None:
    async def main() -> None:
        journal = SqliteJournal(home, fsync="off")
        lease = await journal.begin(RUN, opened(RUN))
        assert lease is not None
        journal.append_soon(lease, "note", Noted(content="lost"))
        await journal.abandon()
        await journal.abandon()
        with pytest.raises(StorageFailed, match="has closed it"):
            await journal.append(lease, "late", Noted(content="late"))
        await journal.close()
        with SqliteQueries.open(home) as queries:
            assert [record.key for record in queries.records(RUN)] == ["requested"]
        async with SqliteJournal(home, fsync="off") as next_one:
            holder = await next_one.transact(lambda tx: tx.holder(RUN))
            assert holder is not None
            assert holder.owner

    asyncio.run(main())


@pytest.mark.rule("journal.first")
def test_after_another_file_took_its_place_the_journal_writes_nothing_more(home: Path) -> None:
    async def main() -> None:
        async with SqliteJournal(home, fsync="off") as journal:
            lease = await journal.begin(RUN, opened(RUN))
            assert lease is not None
            (home / "journal.db").rename(home / "old.db")
            (home / "journal.db").write_bytes(b"")
            for _ in range(2):
                with pytest.raises(StorageGone, match="deleted or replaced"):
                    await journal.append(lease, "note", Noted(content="n"))

    asyncio.run(main())


def test_records_and_markers_of_removed_runs_are_gone(home: Path) -> None:
    async def main() -> None:
        async with SqliteJournal(home) as journal:
            lease = await journal.begin(RUN, opened(RUN))
            assert lease is not None
            await journal.release(lease)
            await journal.purge(RUN)
            assert await journal.known([RUN]) == set()
        async with SqliteJournal(home) as journal:
            assert await journal.begin(OTHER, opened(OTHER)) is not None

    asyncio.run(main())


def test_a_clock_that_cannot_be_started_leaves_no_connection_open(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_ones: list[sqlite3.Connection] = []

    def fail(connection: sqlite3.Connection) -> None:
        opened_ones.append(connection)
        raise ZeroDivisionError

    monkeypatch.setattr(sqlite_writer, "running_clock", fail)
    with pytest.raises(ZeroDivisionError):
        SqliteJournal(home, fsync="off")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened_ones[0].execute("SELECT 1")
