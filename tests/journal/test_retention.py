"""Retention: ended runs go after a while, whole trees at once, and nothing that is still needed."""

import asyncio
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest

from deputy.core.errors import Error, StorageFull, UnknownRun
from deputy.core.events import Requested, Returned, RunOpened
from deputy.core.outcome import Blocked, Completed, Outcome
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.journal import retention
from deputy.journal.clock import Clock
from deputy.journal.retention import DAY_SECONDS, pin, prune, prune_expired
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.sqlite.sqlite_store import SqliteStore
from deputy.journal.transcript import add_note, files_of, scratchpad_path

NOW = 1_000_000_000.0
ERROR = Error(type="question", message="Which?", recoverable=True, recommendation="Answer.")


def make(home: Path, root: str, *, days_ago: float, ending: str = "completed", delivered: bool = True) -> None:
    """A root session with one child, which last did something so many days ago."""
    at = NOW - days_ago * DAY_SECONDS
    lineage = Lineage.root(root)
    request = Request(
        session_id=f"{root}c", target=Hop("a", "agent"), prompt="p" * 20_000, caller=lineage, caller_grant=Grant()
    )

    def outcome(where: Lineage) -> Outcome:
        if ending == "blocked":
            return Blocked(lineage=where, summary="?", errors=(ERROR,), question="Which?")
        return Completed(lineage=where, summary="done")

    async def main() -> None:
        async with SqliteJournal(home, fsync="off", clock=Clock(wall=lambda: at, monotonic=lambda: at)) as journal:
            parent = await journal.begin(root, RunOpened(lineage=lineage))
            assert parent is not None
            child = await journal.spawn(parent, "call", f"{root}c", Requested(request=request, label="x", parent=root))
            assert child is not None
            add_note(scratchpad_path(home, "x", f"{root}c"), "found")
            if ending != "live":
                below = lineage.child(f"{root}c", Hop("a", "agent"), "", now=at, seconds=None)
                await journal.finish(child, "returned:0", Returned(outcome=outcome(below)))
                await journal.finish(parent, "returned:0", Returned(outcome=Completed(lineage=lineage, summary="done")))
                if delivered:
                    await journal.deliver(root, "somebody")

    asyncio.run(main())


def runs(home: Path) -> set[str]:
    reader = SqliteQueries.open(home)
    assert reader is not None
    with reader:
        return {state.run for state in (*reader.live(), *reader.ended(100))}


@pytest.mark.rule("retention")
def test_at_start_up_what_is_older_than_seven_days_goes_with_its_files(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make(home, "old", days_ago=8)
    make(home, "new", days_ago=6)
    assert len(files_of(home, "oldc")) == 2
    assert prune_expired(SqliteStore(home), NOW) == 1
    assert runs(home) == {"new", "newc"}
    assert files_of(home, "oldc") == []
    assert len(files_of(home, "newc")) == 2
    assert prune_expired(SqliteStore(home), NOW, kept_seconds=DAY_SECONDS) == 1
    assert runs(home) == set()


@pytest.mark.rule("disk")
def test_what_is_still_needed_never_goes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make(home, "live", days_ago=100, ending="live")
    make(home, "blocked", days_ago=100, ending="blocked")
    make(home, "pinned", days_ago=100)
    make(home, "waits", days_ago=100, delivered=False)
    make(home, "gone", days_ago=100)
    pin(SqliteStore(home), "pinnedc", pinned=True)
    assert prune_expired(SqliteStore(home), NOW) == 1
    assert runs(home) == {"live", "livec", "blocked", "blockedc", "pinned", "pinnedc", "waits", "waitsc"}
    # A person who says so also gives up results that were never handed over.
    assert [tree.root for tree in prune(SqliteStore(home), NOW)] == ["waits"]
    pin(SqliteStore(home), "pinnedc", pinned=False)
    assert [tree.root for tree in prune(SqliteStore(home), NOW, dry_run=True)] == ["pinned"]
    assert "pinned" in runs(home)
    prune(SqliteStore(home), NOW)
    assert runs(home) == {"live", "livec", "blocked", "blockedc"}


def test_the_latest_of_the_ended_are_listed(tmp_path: Path) -> None:
    for name, days in (("b", 3), ("a", 9), ("c", 1)):
        make(tmp_path / "home", name, days_ago=days)
    reader = SqliteQueries.open(tmp_path / "home")
    assert reader is not None
    with reader:
        assert [state.run for state in reader.ended(4)] == ["b", "bc", "c", "cc"]


def test_pruning_gives_space_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for number in range(15):
        make(home, f"run{number}", days_ago=30)
    before = (home / "journal.db").stat().st_size
    prune(SqliteStore(home), NOW)
    assert (home / "journal.db").stat().st_size < before / 2


def test_what_is_not_there_cannot_be_pinned(tmp_path: Path) -> None:
    with pytest.raises(UnknownRun):
        pin(SqliteStore(tmp_path / "home"), "sess", pinned=True)
    make(tmp_path / "home", "there", days_ago=1)
    with pytest.raises(UnknownRun):
        pin(SqliteStore(tmp_path / "home"), "sess", pinned=True)
    assert prune(SqliteStore(tmp_path / "nowhere"), NOW) == []


@pytest.mark.rule("transcript")
def test_a_transcript_that_a_killed_process_could_not_write_is_written_at_the_next_start(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make(home, "run", days_ago=1, delivered=False)
    (path,) = (home / "subagent").glob("*.transcript.json")
    left = path.read_bytes()
    path.unlink()
    prune_expired(SqliteStore(home), NOW)
    assert path.read_bytes() == left


def test_what_a_process_died_over_goes_too(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make(home, "old", days_ago=8)
    left = [home / ".journal.db.0123456789abcdef.new", home / "subagent" / ".x-oldc.transcript.json.4711"]
    for path in left:
        path.write_bytes(b"half")
    prune_expired(SqliteStore(home), NOW)
    assert [path for path in left if path.exists()] == []


def test_on_a_full_disk_files_go_first_and_make_room_for_removing_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    make(home, "sess_1_old", days_ago=9)
    make(home, "sess_1_new", days_ago=1)
    remove = retention.remove

    def needs_room(connection: sqlite3.Connection, runs: Iterable[str]) -> None:
        if files_of(home, "sess_1_oldc"):
            raise StorageFull(str(home), "no space is left")
        remove(connection, runs)

    monkeypatch.setattr(retention, "remove", needs_room)
    assert [tree.root for tree in prune(SqliteStore(home), NOW - 7 * DAY_SECONDS)] == ["sess_1_old"]
    assert runs(home) == {"sess_1_new", "sess_1_newc"}
    assert files_of(home, "sess_1_newc")


def test_where_no_room_can_be_made_it_is_to_be_freed_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    make(home, "sess_1_old", days_ago=9)

    def full(connection: sqlite3.Connection, runs: Iterable[str]) -> None:
        raise StorageFull(str(home), "no space is left")

    monkeypatch.setattr(retention, "remove", full)
    with pytest.raises(StorageFull, match="Free some space") as error:
        prune(SqliteStore(home), NOW)
    assert "deputy prune" not in str(error.value)
    assert runs(home) == {"sess_1_old", "sess_1_oldc"}
