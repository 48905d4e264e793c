"""Repair: the new journal has all that SQL can read of the damaged one, nothing wrong, and says what it lacks."""

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.journal.conftest import fill, requested
from tests.journal.sqlite.test_sqlite_queries_damage import PAGE, leave, reader_of

from deputy.core.errors import Error, StorageBusy, StorageCorrupt
from deputy.core.events import Noted, Record, StepEnded
from deputy.engine.ports.queries import DamagedRecord
from deputy.journal.retention import pin
from deputy.journal.sqlite import connection as connections
from deputy.journal.sqlite import file_repair as repairing
from deputy.journal.sqlite.file_repair import repair
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.sqlite.sqlite_store import SqliteStore

RUN, OTHER = "sess_1_aaaaaa", "sess_1_bbbbbb"


def damaged_home(whole: Path, to: Path, content: bytes) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(whole, to)
    (to / "journal.db").write_bytes(content)
    return to


def records_of(home: Path, *runs: str) -> dict[tuple[str, int], Record]:
    """The records of these runs in a journal that is not damaged."""
    with reader_of(home) as reader:
        reader.examine()
        assert reader.damage == ""
        found = [record for run in runs for record in reader.records(run)]
    return {(record.run, record.seq): record for record in found if isinstance(record, Record)}


@pytest.mark.parametrize("how", ["zeroed", "garbage"])
def test_a_page_that_is_gone_costs_what_was_on_it(filled: Callable[..., Path], tmp_path: Path, how: str) -> None:
    filled(turns=10, size=600, ended=True)
    home = filled(OTHER, turns=10, size=600, ended=True)
    truth = records_of(home, RUN, OTHER)
    content = (home / "journal.db").read_bytes()
    with closing(sqlite3.connect(home / "journal.db")) as connection:
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'table'").fetchall())
    for page in range(1, len(content) // PAGE):
        put = bytes(PAGE) if how == "zeroed" else random.Random(page).randbytes(PAGE)
        hole = content[: page * PAGE] + put + content[(page + 1) * PAGE :]
        copy = damaged_home(home, tmp_path / "copy", hole)
        repaired = repair(copy)
        found = records_of(copy, RUN, OTHER)
        assert all(truth[place] == record for place, record in found.items())
        assert (repaired.records, repaired.runs) == (len(found), 2), page
        if page + 1 == roots["events"]:
            # The root of a table leads to all of its rows.
            assert (len(found), repaired.incomplete) == (0, (RUN, OTHER))
            continue
        assert len(truth) - len(found) <= 16, page
        assert bool(repaired.incomplete) == ("events" in repaired.unread) == (len(found) < len(truth)), page
        assert (Path(repaired.kept) / "journal.db").read_bytes() == hole


def test_a_flipped_bit_costs_one_record(filled: Callable[..., Path], tmp_path: Path) -> None:
    filled(turns=10, size=600, ended=True)
    home = filled(OTHER, turns=10, size=600, ended=True)
    truth = records_of(home, RUN, OTHER)
    content = (home / "journal.db").read_bytes()
    chance = random.Random(3)
    for _ in range(25):
        flipped = bytearray(content)
        flipped[chance.randrange(PAGE, len(content))] ^= 1 << chance.randrange(8)
        copy = damaged_home(home, tmp_path / "copy", bytes(flipped))
        repair(copy)
        found = records_of(copy, RUN, OTHER)
        assert all(truth[place] == record for place, record in found.items())
        assert len(truth) - len(found) <= 1


def test_a_journal_cut_short_is_read_as_far_as_it_goes(filled: Callable[..., Path], tmp_path: Path) -> None:
    home = filled(turns=40, size=600, ended=True)
    truth = records_of(home, RUN)
    content = (home / "journal.db").read_bytes()
    kept = []
    for share in (0.9, 0.8, 0.65):
        copy = damaged_home(home, tmp_path / "copy", content[: int(len(content) * share)])
        with pytest.raises(StorageCorrupt, match="malformed"):
            SqliteQueries.open(copy)
        repaired = repair(copy)
        found = records_of(copy, RUN)
        assert all(truth[place] == record for place, record in found.items())
        assert repaired.incomplete == (RUN,)
        kept.append(len(found))
    assert len(truth) > kept[0] > kept[1] > kept[2] > 0


def test_of_a_lost_first_page_nothing_is_read_and_a_new_journal_begins(filled: Callable[..., Path]) -> None:
    home = filled()
    content = bytes(PAGE) + (home / "journal.db").read_bytes()[PAGE:]
    (home / "journal.db").write_bytes(content)
    repaired = repair(home)
    assert (repaired.runs, repaired.records) == (0, 0)
    assert "events" in repaired.unread
    assert (Path(repaired.kept) / "journal.db").read_bytes() == content
    asyncio.run(fill(home, OTHER, 1))
    assert len(records_of(home, OTHER)) == 7


def test_a_lost_end_is_cut_off_and_work_goes_on(home: Path, tmp_path: Path) -> None:
    left = tmp_path / "left"
    asyncio.run(leave(home, left, turns=8))
    log = left / "journal.db-wal"
    log.write_bytes(log.read_bytes()[:-5000])
    (left / "journal.db-shm").unlink()
    cut = log.read_bytes()
    repaired = repair(left)
    assert (repaired.runs, repaired.records, repaired.incomplete, repaired.unread) == (1, 40, (), ())
    assert repaired.is_end_lost
    kept = Path(repaired.kept)
    assert sorted(path.name for path in kept.iterdir()) == ["journal.db", "journal.db-mark", "journal.db-wal"]
    assert (kept / "journal.db-wal").read_bytes() == cut

    async def go_on() -> int:
        async with SqliteJournal(left) as journal:
            lease = await journal.acquire(RUN)
            return (await journal.append(lease, "note:more", Noted(content="more"))).seq

    assert asyncio.run(go_on()) == 41


def test_a_lost_end_and_a_damaged_state_cost_a_live_run(home: Path, tmp_path: Path) -> None:
    left = tmp_path / "left"
    asyncio.run(leave(home, left, turns=8))
    with closing(sqlite3.connect(left / "journal.db")) as connection, connection:
        connection.execute("UPDATE runs SET sum = x'00'")
        connection.execute("DELETE FROM events WHERE seq = 41")
    repaired = repair(left)
    assert (repaired.runs, repaired.lost, repaired.is_end_lost) == (0, (RUN,), True)


@pytest.mark.parametrize("kept", ["journal.db-mark", "journal.db-wal"])
def test_a_journal_that_is_missing_is_begun_anew_when_asked(home: Path, tmp_path: Path, kept: str) -> None:
    left = tmp_path / "left"
    asyncio.run(leave(home, left, turns=2))
    for path in left.glob("journal.db*"):
        if path.name != kept:
            path.unlink()
    repaired = repair(left)
    assert repaired.runs == 0
    assert [path.name for path in Path(repaired.kept).iterdir()] == [kept]
    assert records_of(left, RUN) == {}


def test_a_run_that_lacks_records_can_be_read_and_not_resumed(filled: Callable[..., Path]) -> None:
    home = filled()
    with closing(sqlite3.connect(home / "journal.db")) as connection, connection:
        connection.execute("UPDATE events SET body = replace(body, 'finding 1', 'fabricated') WHERE key = 'note:1'")
    repaired = repair(home)
    assert (repaired.records, repaired.incomplete, repaired.unread) == (16, (RUN,), ("events",))
    with reader_of(home) as reader:
        assert reader.examine() == [RUN]
        assert [one for one in reader.records(RUN) if isinstance(one, DamagedRecord)] == [
            DamagedRecord(where=f"{RUN!r} records 12 to 12", what="they are missing")
        ]

    async def resume() -> None:
        async with SqliteJournal(home) as journal:
            await journal.records(RUN)

    with pytest.raises(StorageCorrupt, match="records 12 to 12"):
        asyncio.run(resume())


def test_a_live_run_whose_last_records_may_be_lost_is_not_kept(filled: Callable[..., Path]) -> None:
    filled()
    home = filled(OTHER, ended=True)
    with closing(sqlite3.connect(home / "journal.db")) as connection, connection:
        connection.execute("UPDATE runs SET sum = x'00'")
        connection.execute("UPDATE events SET sum = x'00' WHERE run = ? AND seq = 17", (RUN,))
    repaired = repair(home)
    assert (repaired.runs, repaired.lost, repaired.unread) == (1, (RUN,), ("events", "runs"))
    with reader_of(home) as reader:
        assert not reader.knows(RUN)
        state = reader.state(OTHER)
        assert state is not None
        ended = reader.outcome(state)
    assert ended is not None
    assert ended.summary == "done"


def test_states_are_folded_anew_when_all_records_are_there(filled: Callable[..., Path]) -> None:
    home = filled()
    with reader_of(home) as reader:
        before = reader.state(RUN)
    with closing(sqlite3.connect(home / "journal.db")) as connection, connection:
        connection.execute("UPDATE runs SET state = replace(state, 'running', 'runninh')")
    repaired = repair(home)
    assert (repaired.lost, repaired.is_end_lost) == ((), False)
    with reader_of(home) as reader:
        assert reader.state(RUN) == before


def test_pins_messages_leases_and_errors_are_kept_where_they_can_be_trusted(filled: Callable[..., Path]) -> None:
    home = filled(ended=True)
    filled(OTHER)
    pin(SqliteStore(home), RUN, pinned=True)

    async def send() -> None:
        async with SqliteJournal(home) as journal:
            await journal.send(OTHER, "answer", "one", b'{"text":"yes"}')
            await journal.send(OTHER, "answer", "two", b'{"text":"no"}')
            error = Error(type="timeout", message="Late.", recoverable=True, recommendation="")
            lease = await journal.acquire(OTHER)
            await journal.append(lease, "late", StepEnded(step="late", error=error))

    asyncio.run(send())
    with closing(sqlite3.connect(home / "journal.db")) as connection, connection:
        connection.execute("UPDATE inbox SET body = replace(body, 'no', 'on') WHERE key = 'two'")
        before = connection.execute("SELECT run, owner, epoch FROM leases").fetchall()
    repair(home)
    with closing(sqlite3.connect(home / "journal.db")) as connection:
        assert connection.execute("SELECT run, owner, epoch FROM leases").fetchall() == before
        assert connection.execute("SELECT key, body FROM inbox").fetchall() == [("one", b'{"text":"yes"}')]
    with reader_of(home) as reader:
        assert reader.pinned() == {RUN}
        assert [error.message for error in reader.errors(5)] == ["Late."]


def test_what_was_removed_does_not_come_back(filled: Callable[..., Path]) -> None:
    filled(turns=20, size=600, ended=True)
    home = filled(OTHER, turns=3)
    with closing(sqlite3.connect(home / "journal.db")) as connection, connection:
        connection.execute("DELETE FROM events WHERE run = ?", (RUN,))
        connection.execute("DELETE FROM runs WHERE run = ?", (RUN,))
    content = (home / "journal.db").read_bytes()
    (home / "journal.db").write_bytes(content[: 2 * PAGE] + bytes(PAGE) + content[3 * PAGE :])
    repair(home)
    assert set(records_of(home, RUN, OTHER)) <= {(OTHER, seq) for seq in range(1, 18)}


def test_a_journal_that_is_in_use_is_left_as_it_is(home: Path) -> None:
    async def use() -> None:
        async with SqliteJournal(home) as journal:
            await journal.begin(RUN, requested(RUN))
            before = (home / "journal.db").read_bytes(), (home / "journal.db-wal").read_bytes()
            with pytest.raises(StorageBusy, match="End that process"):
                repair(home)
            assert before == ((home / "journal.db").read_bytes(), (home / "journal.db-wal").read_bytes())

    asyncio.run(use())
    assert [path.name for path in home.iterdir() if "damaged" in path.name or ".new" in path.name] == []
    assert len(records_of(home, RUN)) == 1


def test_a_database_of_another_program_is_left_as_it_is(home: Path) -> None:
    home.mkdir(0o700)
    with closing(sqlite3.connect(home / "journal.db")) as connection, connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(StorageCorrupt, match="not a journal of Deputy"):
        repair(home)
    assert [path.name for path in home.iterdir()] == ["journal.db"]


def test_a_large_hole_is_passed_in_few_steps(filled: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    home = filled(turns=400, size=600, ended=True)
    content = (home / "journal.db").read_bytes()
    third = len(content) // PAGE // 3 * PAGE
    (home / "journal.db").write_bytes(content[:third] + bytes(third) + content[2 * third :])
    tried: list[str] = []
    connect = connections.connect

    def traced(path: Path, mode: str) -> sqlite3.Connection:
        connection = connect(path, mode)
        if mode == "ro":
            connection.set_trace_callback(tried.append)
        return connection

    monkeypatch.setattr(repairing, "connect", traced)
    repaired = repair(home)
    assert 400 < repaired.records < 1800
    assert len(tried) < 200
