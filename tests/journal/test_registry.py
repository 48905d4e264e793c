"""The registry: a view over the journal, which any process can have."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from deputy.core.events import CancelRequested, QuestionAsked, Requested, Returned, RunOpened, Started
from deputy.core.outcome import Completed
from deputy.core.request import Grant, Hop, Lineage, Request, TaskContext
from deputy.journal.clock import Clock
from deputy.journal.registry import entry_dict, list_runs, show_run, statuses
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

NOW = 1_000_000_000.0
STILL = Clock(wall=lambda: NOW, monotonic=lambda: NOW)
ROOT = "sess_1_root00"


def request(child: str, caller: Lineage) -> Requested:
    asked = Request(
        session_id=child,
        target=Hop("researcher", "agent"),
        prompt="p",
        caller=caller,
        caller_grant=Grant(),
        seconds=3600.0,
        task_context=TaskContext(task_number=7),
    )
    return Requested(request=asked, label=f"label of {child}", command="research", parent=caller.session_id)


async def tree(journal: SqliteJournal) -> None:
    """A root with two children, one of which has one of its own and waits; the other has ended."""
    top = Lineage.root(ROOT)
    root = await journal.begin(ROOT, RunOpened(lineage=top, label="top"))
    assert root is not None
    await journal.append(root, "started", Started(backend="native"))
    first = await journal.spawn(root, "1", "sess_1_first0", request("sess_1_first0", top))
    assert first is not None
    assert first.state.lineage is not None
    await journal.append(first, "q.asked", QuestionAsked(topic="answer", question="Which?"))
    second = await journal.spawn(root, "2", "sess_1_second", request("sess_1_second", top))
    assert second is not None
    below = await journal.spawn(first, "3", "sess_1_below0", request("sess_1_below0", first.state.lineage))
    assert below is not None
    await journal.append(below, "stop", CancelRequested())
    assert second.state.lineage is not None
    done = Completed(lineage=second.state.lineage, summary="done", report="All of it.")
    await journal.finish(second, "returned:0", Returned(outcome=done))


def at_work(home: Path, look: object) -> None:
    async def main() -> None:
        async with SqliteJournal(home, fsync="off", clock=STILL) as journal:
            await tree(journal)
            await journal.read(look)

    asyncio.run(main())


@pytest.mark.rule("registry.entry")
def test_the_live_ones_are_listed_as_a_tree_with_where_they_stand(tmp_path: Path) -> None:
    def look(reader: SqliteQueries) -> None:
        entries = [entry_dict(standing, NOW) for standing in list_runs(reader)]
        assert [entry["session_id"] for entry in entries] == [ROOT, "sess_1_first0", "sess_1_below0"]
        assert [entry["status"] for entry in entries] == ["running", "waiting", "running"]
        assert [entry["delegation_depth"] for entry in entries] == [0, 1, 2]
        assert entries[2]["delegation_path"] == ("orchestrator", "researcher", "researcher")
        entry = entries[1]
        assert (entry["command"], entry["subagent"], entry["task_number"]) == ("research", "researcher", 7)
        assert (entry["timeout"], entry["started_at"]) == (3600.0, "2001-09-09T01:46:40Z")
        assert entry["deadline"] == "2001-09-09T02:46:40Z"
        assert (entry["question"], entry["label"]) == ("Which?", "label of sess_1_first0")
        assert entry["usage"] == {"input": 0, "output": 0, "cached": 0, "requests": 0, "cost": 0.0, "estimated": False}

    at_work(tmp_path / "home", look)


@pytest.mark.rule("registry.monitor")
def test_what_its_process_left_is_interrupted_and_what_waits_still_waits(tmp_path: Path) -> None:
    at_work(tmp_path / "home", lambda reader: None)
    reader = SqliteQueries.open(tmp_path / "home")
    assert reader is not None
    with reader:
        statuses = {s.state.run: entry_dict(s, NOW)["status"] for s in list_runs(reader)}
        late = {s.state.run: entry_dict(s, NOW + 4000.0)["overdue"] for s in list_runs(reader)}
    assert statuses == {ROOT: "interrupted", "sess_1_first0": "waiting", "sess_1_below0": "interrupted"}
    assert late == {ROOT: False, "sess_1_first0": False, "sess_1_below0": True}


def test_ended_ones_stay_in_history_with_their_outcome(tmp_path: Path) -> None:
    def look(reader: SqliteQueries) -> None:
        assert [standing.state.run for standing in list_runs(reader, ended=10)] == [
            ROOT,
            "sess_1_first0",
            "sess_1_below0",
            "sess_1_second",
        ]
        form = show_run(reader, "sess_1_second")
        assert form is not None
        assert (form["status"], form["outcome"]["report"]) == ("completed", "All of it.")
        running = show_run(reader, ROOT)
        assert running is not None
        assert running["outcome"] is None
        assert show_run(reader, "sess_0_nobody") is None

    at_work(tmp_path / "home", look)


def test_a_damaged_outcome_is_not_believed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    at_work(home, lambda reader: None)
    with sqlite3.connect(home / "journal.db") as connection:
        connection.execute("UPDATE events SET body = replace(body, 'All', 'Non') WHERE key = 'returned:0'")
    connection.close()
    reader = SqliteQueries.open(home)
    assert reader is not None
    with reader:
        state = reader.state("sess_1_second")
        assert state is not None
        assert reader.outcome(state) is None


def test_a_run_that_ends_while_it_is_being_looked_at_is_not_taken_for_one_that_was_left(tmp_path: Path):
    async def main() -> tuple[str, str]:
        async with SqliteJournal(tmp_path, fsync="off", clock=STILL) as journal:
            lease = await journal.begin(ROOT, RunOpened(lineage=Lineage.root(ROOT), label="top"))
            assert lease is not None
            before = await journal.read(lambda reader: reader.state(ROOT))
            done = Completed(lineage=Lineage.root(ROOT), summary="done", report="All of it.")
            await journal.finish(lease, "returned:0", Returned(outcome=done))
            (standing,) = await journal.read(lambda reader: statuses(reader, [before]))
            return before.status, entry_dict(standing, NOW)["status"]

    assert asyncio.run(main()) == ("requested", "completed")
