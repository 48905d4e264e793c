import json
from pathlib import Path

import pytest

from deputy.core.errors import Error
from deputy.core.outcome import Blocked, Cancelled, Completed, Outcome, Rejected
from deputy.core.project_task import begun
from deputy.core.request import Lineage
from deputy.project_tasks.sync import RecordedOutcome, sync_tasks, unsettled
from deputy.project_tasks.task_file import TaskFile

DONE = Completed(lineage=Lineage.root("sess_1_aaaaaa"), summary="s")


def ending(round_: int = 0, outcome: Outcome = DONE) -> RecordedOutcome:
    return RecordedOutcome(outcome=outcome, round=round_, at="now")


@pytest.fixture
def tasks(tmp_path: Path) -> TaskFile:
    tasks = TaskFile(tmp_path)
    tasks.add("One", at="then")
    tasks.change(1, lambda task: begun(task, "research", "s1", "then"))
    return tasks


@pytest.mark.rule("commands.state")
def test_a_task_is_settled_once_its_session_has_ended(tasks: TaskFile) -> None:
    sync_tasks(tasks, lambda _: None)
    assert (tasks.find(1).status, len(unsettled(tasks))) == ("in progress", 1)
    for _ in range(2):
        sync_tasks(tasks, {"s1": ending()}.get)
        assert (tasks.find(1).status, len(unsettled(tasks)), len(tasks.find(1).history)) == ("researched", 0, 3)


def test_the_end_of_an_earlier_go_does_not_settle_a_later_one(tasks: TaskFile) -> None:
    sync_tasks(tasks, {"s1": ending()}.get)
    tasks.change(1, lambda task: begun(task, "research", "s1", "later", 1))
    sync_tasks(tasks, {"s1": ending()}.get)
    assert tasks.find(1).status == "in progress"
    sync_tasks(tasks, {"s1": ending(1)}.get)
    assert tasks.find(1).status == "researched"


def test_a_task_that_is_claimed_again_while_it_is_read_stays_claimed(tasks: TaskFile) -> None:
    def look(_: str) -> RecordedOutcome:
        sync_tasks(tasks, {"s1": ending()}.get)
        tasks.change(1, lambda task: begun(task, "research", "s1", "later", 1))
        return ending()

    sync_tasks(tasks, look)
    work = tasks.find(1).work
    assert work is not None
    assert (work.round, tasks.find(1).status) == (1, "in progress")


@pytest.mark.rule("commands.state")
def test_a_question_that_is_dropped_frees_its_task_without_a_process(tasks: TaskFile) -> None:
    error = Error(type="question", message="Which?", recoverable=True, recommendation="Say it.")
    asks = Blocked(lineage=DONE.lineage, summary="s", errors=(error,), question="Which?")
    for _ in range(2):
        sync_tasks(tasks, {"s1": ending(0, asks)}.get)
        assert (tasks.find(1).status, tasks.find(1).question, len(tasks.find(1).history)) == ("blocked", "Which?", 3)
    for _ in range(2):
        sync_tasks(tasks, {"s1": ending(1, Cancelled(lineage=DONE.lineage, summary="s"))}.get)
        assert (tasks.find(1).status, tasks.find(1).question, len(tasks.find(1).history)) == ("not started", "", 4)
    assert not unsettled(tasks)


REFUSED = Error(type="approval", message="Not approved.", recoverable=True, recommendation="Ask.")


@pytest.mark.rule("commands.state")
@pytest.mark.parametrize("edit", [{}, {"title": "Three"}, {"text": "More words."}, {"status": "planned"}], ids=str)
def test_a_draft_that_is_not_approved_is_removed_unless_it_was_edited_by_hand(tasks: TaskFile, edit: dict) -> None:
    added = tasks.add_draft(tasks.draft("Two", text="Words.", at="then"), "s2")
    file = json.loads(tasks.path.read_text())
    file["tasks"][-1].update(edit)
    tasks.path.write_text(json.dumps(file))
    sync_tasks(tasks, {"s2": ending(0, Rejected(lineage=DONE.lineage, summary="s", errors=(REFUSED,)))}.get)
    kept = [task for task in tasks.tasks() if task.number == added.number]
    assert [task.title for task in kept] == ([edit.get("title", "Two")] if edit else [])
