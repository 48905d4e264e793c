"""What a dead process left is found, and what may be done about it is said."""

import pytest

from deputy.core.request import Lineage
from deputy.core.state import State, StepInProgress
from deputy.engine.recover import OrphanedRun, Overdue, RunStatus, Undelivered, find, judge, shown_status

NOW = 1000.0


def standing(status: str, *, left: bool = False, deadline: float | None = None, **fields: object) -> RunStatus:
    lineage = Lineage.root("sess", deadline=deadline)
    return RunStatus(state=State(run="sess", seq=1, status=status, lineage=lineage, **fields), is_orphaned=left)


@pytest.mark.rule("recover")
def test_what_was_left_running_says_which_steps_may_be_taken_again() -> None:
    steps = {"model": StepInProgress(name="m"), "pay": StepInProgress(name="Run", is_repeatable=False)}
    found = judge(standing("running", left=True, under_way=steps), NOW)
    assert isinstance(found, OrphanedRun)
    assert (found.repeats, found.unknown) == (("model",), ("pay",))


@pytest.mark.rule("recover")
@pytest.mark.parametrize(
    ("status", "left", "shown"),
    [
        ("requested", False, "running"),
        ("running", False, "running"),
        ("running", True, "interrupted"),
        ("requested", True, "interrupted"),
        ("waiting", True, "waiting"),
        ("completed", True, "completed"),
        ("blocked", True, "blocked"),
    ],
)
def test_people_see_what_was_interrupted(status: str, left: bool, shown: str) -> None:
    assert shown_status(standing(status, left=left)) == shown


@pytest.mark.rule("registry.monitor")
def test_what_is_past_its_deadline_is_found_in_any_process() -> None:
    assert isinstance(judge(standing("running", left=True, deadline=999.0), NOW), Overdue)
    # Its own process gets a moment to end it.
    assert judge(standing("running", deadline=999.0), NOW) is None
    found = judge(standing("running", deadline=990.0), NOW)
    assert isinstance(found, Overdue)
    assert found.seconds == 10.0


def test_a_run_that_waits_for_a_person_is_neither_late_nor_interrupted() -> None:
    assert judge(standing("waiting", left=True, deadline=1.0), NOW) is None


@pytest.mark.rule("deliver")
def test_a_result_that_was_not_delivered_is_found() -> None:
    assert isinstance(judge(standing("completed"), NOW), Undelivered)
    assert judge(standing("completed", is_delivered=True), NOW) is None


def test_findings_come_in_the_order_the_runs_began() -> None:
    later, sooner = standing("completed", requested_at=2.0), standing("running", left=True, requested_at=1.0)
    assert [type(found) for found in find([later, sooner, standing("running")], NOW)] == [OrphanedRun, Undelivered]
