"""Damaged bytes: a journal is refused, or read without wrong data and with the name of what is lost."""

import asyncio
import random
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.journal.conftest import requested, turn

from deputy.core.errors import StorageCorrupt, StorageGone, StorageTooNew
from deputy.core.events import Record, RunOpened, Started
from deputy.core.request import Lineage
from deputy.core.state import State
from deputy.journal import registry
from deputy.journal.expire import expire_overdue
from deputy.journal.process_identity import ProcessIdentity
from deputy.journal.registry import list_runs
from deputy.journal.retention import prune
from deputy.journal.sql.rows import DamagedRecord, Row, read_state
from deputy.journal.sqlite import file_repair
from deputy.journal.sqlite.commit_marker import read_marker
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.sqlite.sqlite_store import SqliteStore
from deputy.journal.transcript import transcribe

RUN = "sess_1_aaaaaa"
PAGE = 4096


def read(home: Path) -> list[Record | DamagedRecord] | None:
    """All that can be read of the run; None when the file as a whole is refused."""
    try:
        with reader_of(home) as reader:
            records = list(reader.records(RUN))
            list_runs(reader, ended=10)
            transcribe(reader.records(RUN))
            return records
    except (StorageCorrupt, StorageTooNew):
        return None


def reader_of(home: Path) -> SqliteQueries:
    reader = SqliteQueries.open_any(home)
    assert reader is not None
    return reader


def damaged_copy(home: Path, to: Path, content: bytes) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(0o700)
    (to / "journal.db").write_bytes(content)
    return to


def test_a_flipped_bit_is_never_believed(filled: Callable[..., Path], tmp_path: Path) -> None:
    home = filled(turns=40, size=600)
    whole = read(home)
    assert whole is not None
    truth = {record.seq: record for record in whole if isinstance(record, Record)}
    assert len(truth) == len(whole) == 202
    content = (home / "journal.db").read_bytes()
    chance = random.Random(5)
    harmed = refused = 0
    for number in range(140):
        # The first page, which describes all others, is hit more often than its size asks for.
        place = chance.randrange(len(content) if number < 110 else PAGE)
        flipped = bytearray(content)
        flipped[place] ^= 1 << chance.randrange(8)
        found = read(damaged_copy(home, tmp_path / "copy", bytes(flipped)))
        if found is None:
            refused += 1
            continue
        records = [record for record in found if isinstance(record, Record)]
        assert all(truth[record.seq] == record for record in records)
        assert [record.seq for record in records] == sorted({record.seq for record in records})
        if len(records) < len(truth):
            assert any(isinstance(record, DamagedRecord) for record in found)
            harmed += 1
    assert harmed > 20
    assert 0 < refused < 40


@pytest.mark.parametrize("how", ["zeroed", "garbage"])
def test_a_page_that_is_gone_is_refused_or_loses_nothing_unsaid(
    filled: Callable[..., Path], tmp_path: Path, how: str
) -> None:
    filled(turns=20, size=600, ended=True)
    home = filled("sess_1_bbbbbb", turns=20, size=600)
    content = (home / "journal.db").read_bytes()
    refused = 0
    for page in range(1, len(content) // PAGE):
        put = bytes(PAGE) if how == "zeroed" else random.Random(page).randbytes(PAGE)
        hole = content[: page * PAGE] + put + content[(page + 1) * PAGE :]
        copy = damaged_copy(home, tmp_path / "copy", hole)
        found = read(copy)
        refused += found is None
        if found is not None:
            lost = 103 - sum(isinstance(record, Record) for record in found)
            assert not lost or any(isinstance(record, DamagedRecord) for record in found), page
        # A look at everything finds it in any case.
        with pytest.raises(StorageCorrupt, match="deputy doctor --repair"), reader_of(copy) as reader:
            reader.examine()
    assert 0 < refused < len(content) // PAGE


def late(home: Path) -> list[str]:
    """What is past its deadline, and may be ended."""
    with reader_of(home) as reader:
        return [state.run for state in registry.out_of_time(reader, time.time() + 1e6).late]


def test_one_damaged_row_stops_no_process_from_ending_what_is_late(filled: Callable[..., Path]) -> None:
    filled()
    home = filled("sess_1_bbbbbb")
    assert late(home) == [RUN, "sess_1_bbbbbb"]
    with closing(sqlite3.connect(home / "journal.db")) as connection, connection:
        connection.execute("UPDATE runs SET state = replace(state, 'running', 'runninh') WHERE run = ?", (RUN,))
    with reader_of(home) as reader:
        found = registry.out_of_time(reader, time.time() + 1e6).late
        assert f"the state of {RUN!r}: its checksum does not fit" in reader.damage
    assert [state.run for state in expire_overdue(SqliteStore(home), found)] == [RUN, "sess_1_bbbbbb"]
    with reader_of(home) as after:
        assert [state.status for state in after.tree("sess_1_parent")] == ["partial", "partial"]
        assert after.examine() == []
        assert after.damage == ""


def test_a_run_of_which_not_even_its_length_is_known_does_not_stop_the_ending_of_others(
    filled: Callable[..., Path],
) -> None:
    filled()
    home = filled("sess_1_bbbbbb")
    with closing(sqlite3.connect(home / "journal.db")) as connection, connection:
        connection.execute("UPDATE runs SET sum = x'00' WHERE run = ?", (RUN,))
        connection.execute("UPDATE events SET sum = x'00' WHERE run = ? AND seq > 1", (RUN,))
    with reader_of(home) as reader:
        found = registry.out_of_time(reader, time.time() + 1e6).late
    assert [state.run for state in expire_overdue(SqliteStore(home), found)] == ["sess_1_bbbbbb"]
    assert late(home) == [RUN]


def test_what_another_process_removes_meanwhile_is_not_said_to_be_damaged(filled: Callable[..., Path]) -> None:
    home = filled(turns=60, ended=True)
    with reader_of(home) as reader:
        state = reader.state(RUN)
        assert state is not None
        records = reader.records(RUN)
        assert isinstance(next(records), Record)
        assert [tree.root for tree in prune(SqliteStore(home), time.time() + 60)] == ["sess_1_parent"]
        assert not any(isinstance(record, DamagedRecord) for record in records)
        assert reader.outcome(state) is None
        assert reader.damage == ""


def test_what_another_process_removes_while_all_is_examined_is_not_said_to_be_damaged(
    filled: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = filled(turns=2, ended=True)

    def read_then_removed(row: Row) -> State | None:
        prune(SqliteStore(home), time.time() + 60)
        return read_state(row)

    monkeypatch.setattr(file_repair, "read_state", read_then_removed)
    with reader_of(home) as reader:
        reader.examine()
        assert reader.damage == ""
        assert not reader.knows(RUN)


@pytest.mark.parametrize("index", ["runs_live", "runs_by_root", "leases_by_owner"])
def test_a_lost_index_of_runs_is_found_when_the_journal_is_opened(filled: Callable[..., Path], index: str) -> None:
    home = filled()
    with closing(sqlite3.connect(home / "journal.db")) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (index,)).fetchone()
        # An index that looks sound and has no rows hides them all.
        empty = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'inbox_waiting'").fetchone()[0]
    content = (home / "journal.db").read_bytes()
    hole = content[(empty - 1) * PAGE : empty * PAGE]
    damaged_copy(home, home, content[: (page - 1) * PAGE] + hole + content[page * PAGE :])
    if index == "leases_by_owner":
        # No process holds a lease any more, so nothing is hidden.
        reader_of(home).close()
        return
    with pytest.raises(StorageCorrupt, match=r"the table runs or one of its indexes is damaged .*--repair"):
        SqliteQueries.open_any(home)


def test_a_damaged_index_of_runs_is_rebuilt_from_the_records(filled: Callable[..., Path]) -> None:
    home = filled()
    with sqlite3.connect(home / "journal.db") as connection:
        connection.execute("UPDATE runs SET state = ?", (b'{"run":"sess_1_aaaaaa","status":"completed"}',))
    connection.close()
    reader = SqliteQueries.open(home)
    assert reader is not None
    with reader:
        state = reader.state(RUN)
        assert state is not None
        assert (state.status, state.counts.turns) == ("running", 3)


def test_a_record_that_was_changed_is_left_out_and_named(filled: Callable[..., Path]) -> None:
    home = filled()
    with sqlite3.connect(home / "journal.db") as connection:
        connection.execute("UPDATE events SET body = replace(body, 'finding 1', 'fabricated') WHERE key = 'note:1'")
        connection.execute("DELETE FROM events WHERE key IN ('tool:0', 'tool:2')")
    connection.close()
    found = read(home)
    assert found is not None
    damaged = [record for record in found if isinstance(record, DamagedRecord)]
    assert len(damaged) == 3
    assert [record.seq for record in found if isinstance(record, Record)] == [
        *range(1, 6),
        *range(7, 12),
        *range(13, 16),
        17,
    ]
    transcript = transcribe(found)
    assert transcript is not None
    assert transcript.notes == ("finding 0", "finding 2")
    assert len(transcript.damaged) == 3


DEAD = ProcessIdentity(boot="before", space="-", pid=1, started="0")


async def leave(home: Path, to: Path, turns: int) -> None:
    """A copy of a journal as a process leaves it that dies: all of it is still in the log."""
    async with SqliteJournal(home, owner=DEAD, fsync="off") as journal:
        lease = await journal.begin(RUN, requested(RUN))
        assert lease is not None
        for number in range(turns):
            for key, event in turn(number, 600):
                await journal.append(lease, key, event)
        shutil.copytree(home, to)


def test_a_damaged_log_is_refused_by_all_that_read_or_write(home: Path, tmp_path: Path) -> None:
    left = tmp_path / "left"
    asyncio.run(leave(home, left, turns=8))
    assert len(read(left) or ()) == 41
    log = left / "journal.db-wal"
    content = log.read_bytes()
    chance = random.Random(7)
    for _ in range(20):
        place = chance.randrange(len(content))
        flipped = content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]
        log.write_bytes(flipped)
        for use in (SqliteQueries.open, SqliteQueries.open_any, SqliteJournal):
            (left / "journal.db-shm").unlink(missing_ok=True)
            with pytest.raises(StorageCorrupt, match=r"its end is missing, with record 41 of .*deputy doctor --repair"):
                use(left)
        assert log.read_bytes() == flipped


@pytest.mark.parametrize("how", ["cut", "zeroed", "gone"])
def test_a_log_that_lost_its_end_is_refused(home: Path, tmp_path: Path, how: str) -> None:
    left = tmp_path / "left"
    asyncio.run(leave(home, left, turns=8))
    log = left / "journal.db-wal"
    content = log.read_bytes()
    frames = range(32, len(content), PAGE + 24)
    # Frames that end a transaction say how large the file is then.
    commits = [at for at in frames if any(content[at + 4 : at + 8])]
    if how == "gone":
        log.unlink()
    else:
        kept = content[: commits[-1]]
        log.write_bytes(kept if how == "cut" else kept + bytes(len(content) - len(kept)))
    (left / "journal.db-shm").unlink(missing_ok=True)
    with pytest.raises(StorageCorrupt, match="its end is missing, with record 41 of"):
        SqliteQueries.open_any(left)


def test_a_log_that_never_had_more_is_not_said_to_have_lost_anything(home: Path, tmp_path: Path) -> None:
    left = tmp_path / "left"
    asyncio.run(leave(home, left, turns=8))
    for mark in (b"", b"torn", b"0 41 someone\n", b"\xff" * 5000):
        (left / "journal.db-mark").write_bytes(mark)
        found = read(left)
        assert found is not None
        assert [record for record in found if isinstance(record, DamagedRecord)] == []


def test_what_was_removed_is_not_missed(filled: Callable[..., Path]) -> None:
    home = filled(ended=True)
    assert read_marker(home) is not None
    assert len(prune(SqliteStore(home), time.time() + 60)) == 1
    assert read(home) == []
    assert read_marker(home) is None


def test_what_is_removed_between_two_looks_is_not_missed(
    filled: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = filled(ended=True)
    probe = SqliteQueries.probe

    def removed_first(reader: SqliteQueries) -> None:
        prune(SqliteStore(home), time.time() + 60)
        probe(reader)

    monkeypatch.setattr(SqliteQueries, "probe", removed_first)
    assert read(home) == []


@pytest.mark.parametrize("how", ["empty", "missing"])
@pytest.mark.parametrize("witness", ["mark", "log"])
def test_a_journal_that_was_lost_is_not_started_anew_unasked(
    home: Path, tmp_path: Path, how: str, witness: str
) -> None:
    left = tmp_path / "left"
    asyncio.run(leave(home, left, turns=2))
    (left / "journal.db").unlink()
    if how == "empty":
        (left / "journal.db").touch(0o600)
    (left / ("journal.db-wal" if witness == "mark" else "journal.db-mark")).unlink()

    async def write() -> None:
        async with SqliteJournal(left) as journal:
            await journal.begin("sess_1_bbbbbb", requested("sess_1_bbbbbb"))

    with pytest.raises(StorageCorrupt, match=f"it is {how}, though .*deputy doctor --repair"):
        asyncio.run(write())
    if how == "missing" or witness == "mark":
        with pytest.raises(StorageCorrupt, match=f"it is {how}, though .*deputy doctor --repair"):
            SqliteQueries.open_any(left)
    for path in left.glob("journal.db*"):
        path.unlink()
    asyncio.run(write())
    reader = SqliteQueries.open_any(left)
    assert reader is not None
    with reader:
        assert (len(reader.live()), reader.damage) == (1, "")


def test_a_journal_that_is_made_anew_is_not_held_to_an_earlier_one(filled: Callable[..., Path]) -> None:
    home = filled()
    (home / "journal.db").unlink()
    (home / "journal.db-mark").write_bytes(b"torn")

    async def purge() -> None:
        async with SqliteJournal(home) as journal:
            assert read(home) == []
            await journal.begin(RUN, requested(RUN))
            assert len(read(home) or ()) == 1
            await journal.purge(RUN)
            assert read(home) == []

    asyncio.run(purge())


@pytest.mark.rule("journal.first")
@pytest.mark.parametrize(
    "how", ["rm -f journal.db*", "rm -f journal.db", 'rm -rf "$PWD"', "mv journal.db x; cp x journal.db"]
)
def test_a_journal_that_is_deleted_while_it_is_written_to_is_noticed(tmp_path, how):
    async def main():
        async with SqliteJournal(tmp_path / "home") as journal:
            lease = await journal.begin("sess_1_aaaaaa", RunOpened(lineage=Lineage.root("sess_1_aaaaaa")))
            await asyncio.to_thread(subprocess.run, ["/bin/sh", "-c", how], cwd=tmp_path / "home", check=True)
            for _ in range(2):
                with pytest.raises(StorageGone, match="deleted or replaced"):
                    await journal.append(lease, "started", Started())

    asyncio.run(main())


def test_a_record_that_belongs_to_another_run_is_not_shown(filled: Callable[..., Path]) -> None:
    filled("sess_1_bbbbbb")
    home = filled()
    with closing(sqlite3.connect(home / "journal.db")) as connection, connection:
        connection.execute("UPDATE runs SET state = (SELECT state FROM runs WHERE run = ?)", ("sess_1_bbbbbb",))
        connection.execute("UPDATE runs SET sum = (SELECT sum FROM runs WHERE run = ?)", ("sess_1_bbbbbb",))
    with reader_of(home) as reader:
        state = reader.state(RUN)
        assert state is not None
        assert state.run == RUN
        assert "the state of" in reader.damage
