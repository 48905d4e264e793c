import pytest
from tests.support.every_case import every_case

from deputy.core.errors import Error, TaskBusy, UsageError
from deputy.core.outcome import Artifact, Blocked, Cancelled, Completed, Failed, Outcome, Partial, Rejected
from deputy.core.project_task import (
    MOVES,
    TASK_STATUSES,
    ProjectTask,
    abandoned,
    begun,
    dismissed,
    finished,
    read_numbers,
    released,
    reopened,
    slug,
)
from deputy.core.request import Lineage

LINEAGE = Lineage.root("sess_1_aaaaaa")
ERROR = Error(type="x", message="m", recoverable=True, recommendation="r")
MADE = (Artifact(type="file", path="report.md"),)
OUTCOMES: dict[str, Outcome] = {
    "completed": Completed(lineage=LINEAGE, summary="s", artifacts=MADE),
    "partial": Partial(lineage=LINEAGE, summary="s", errors=(ERROR,), artifacts=MADE),
    "failed": Failed(lineage=LINEAGE, summary="s", errors=(ERROR,)),
    "blocked": Blocked(lineage=LINEAGE, summary="s", errors=(ERROR,), question="Which one?"),
    "cancelled": Cancelled(lineage=LINEAGE, summary="s"),
    "rejected": Rejected(lineage=LINEAGE, summary="s", errors=(ERROR,)),
}
ONE = ProjectTask(number=1, title="One")


def run(command: str, outcome: str, task: ProjectTask = ONE) -> ProjectTask:
    return finished(begun(task, command, "s1", "then"), "s1", OUTCOMES[outcome], "now")


@pytest.mark.rule("commands.state")
@every_case(
    ("command", "outcome", "status"),
    [
        ("research", "completed", "researched"),
        ("plan", "completed", "planned"),
        ("implement", "completed", "completed"),
        ("review", "completed", "not started"),
        ("research", "partial", "in progress"),
        ("research", "blocked", "blocked"),
        ("research", "failed", "not started"),
        ("research", "cancelled", "not started"),
        ("research", "rejected", "not started"),
    ],
)
def test_a_status_moves_by_what_was_returned_and_by_nothing_else(command: str, outcome: str, status: str) -> None:
    task = run(command, outcome)
    assert task.status == status
    assert task.work is None
    assert [entry.outcome for entry in task.history] == ["", outcome]
    assert task.question == ("Which one?" if outcome == "blocked" else "")
    assert task.artifacts == (("report.md",) if outcome in ("completed", "partial") else ())


@pytest.mark.rule("commands.state")
def test_the_way_of_a_task_is_from_research_over_a_plan_to_its_end() -> None:
    task = ONE
    for command, status in (
        ("research", "researched"),
        ("plan", "planned"),
        ("revise", "planned"),
        ("implement", "completed"),
    ):
        assert begun(task, command, "s1", "then").status == "in progress"
        task = run(command, "completed", task)
        assert task.status == status
    assert run("review", "failed", task).status == "completed"
    assert begun(task, "review", "s1", "then").status == "completed"


@pytest.mark.rule("commands.state")
@every_case("command", MOVES)
@every_case("status", TASK_STATUSES)
def test_only_legal_transitions_begin(command: str, status: str) -> None:
    task = ProjectTask(number=1, title="One", status=status)  # pyright: ignore
    if status in MOVES[command].begins_at:
        assert begun(task, command, "s", "t").work is not None
    else:
        with pytest.raises(UsageError, match=f"task 1.*{status}"):
            begun(task, command, "s", "t")


@pytest.mark.rule("commands.state")
def test_a_second_command_is_refused_with_the_session_of_the_first() -> None:
    task = begun(ONE, "implement", "sess_first", "then")
    with pytest.raises(UsageError, match="sess_first"):
        begun(task, "review", "sess_second", "now")
    with pytest.raises(UsageError, match="sess_first"):
        abandoned(task, "now")


@pytest.mark.rule("commands.state")
def test_an_outcome_settles_once_and_only_its_own_session() -> None:
    task = begun(ONE, "implement", "s1", "then")
    assert finished(task, "s2", OUTCOMES["completed"], "now") == task
    done = finished(task, "s1", OUTCOMES["completed"], "now")
    assert finished(done, "s1", OUTCOMES["failed"], "later") == done


@pytest.mark.rule("commands.state")
@pytest.mark.parametrize(("command", "before"), [("implement", "planned"), ("review", "completed")])
def test_a_question_that_is_dropped_leaves_the_task_where_it_stood_before_it_was_asked(command, before) -> None:
    task = run(command, "blocked", ProjectTask(number=1, title="One", status=before))
    assert task.asked is not None
    free = dismissed(task, task.asked, "later")
    assert (free.status, free.question, free.asked) == (before, "", None)
    assert [(entry.what, entry.outcome) for entry in free.history[-2:]] == [
        (f"{command} ended", "blocked"),
        (f"{command} ended", "cancelled"),
    ]
    assert begun(free, command, "s1", "later").status in ("in progress", before), "it may be gone on with"
    assert dismissed(free, task.asked, "later") == free
    # The same when it was gone on with before it was cancelled.
    assert (run(command, "cancelled", task).status, run(command, "cancelled", task).question) == (before, "")


@pytest.mark.rule("commands.state")
def test_a_question_is_dropped_with_the_session_that_asked_it_and_with_no_other() -> None:
    def other(outcome: str, task: ProjectTask) -> ProjectTask:
        return finished(begun(task, "plan", "s2", "then"), "s2", OUTCOMES[outcome], "now")

    task = run("implement", "blocked")
    assert task.asked is not None
    for outcome in ("failed", "cancelled", "rejected"):
        after = other(outcome, task)
        assert (after.status, after.question, after.asked) == ("blocked", "Which one?", task.asked)
    for outcome in ("completed", "partial"):
        assert other(outcome, task).asked is None
    asked = other("blocked", task).asked
    assert asked is not None
    assert (asked.session_id, asked.before) == ("s2", "not started")
    assert abandoned(task, "now").asked is None
    free = dismissed(begun(task, "plan", "s2", "then"), task.asked, "now")
    assert (free.status, free.work and free.work.before) == ("in progress", "not started")


def test_a_task_is_given_up_and_taken_up_again() -> None:
    gone = abandoned(ONE, "now")
    assert (gone.status, reopened(gone, "now").status) == ("abandoned", "not started")
    for move, task in ((abandoned, gone), (reopened, ONE)):
        with pytest.raises(UsageError, match="already has this status"):
            move(task, "now")


@pytest.mark.parametrize(
    ("text", "why"), [("9" * 20, "at most 9 digits"), ("012", "leading zeros"), ("0", "1 or more")]
)
def test_a_number_that_cannot_be_one_is_refused_for_what_is_wrong_with_it(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_numbers(text)


@pytest.mark.rule("commands.state")
@every_case(
    ("text", "numbers"),
    [
        ("12", (12,)),
        ("105-107", (105, 106, 107)),
        ("3-3", (3,)),
        (" 4 ", (4,)),
        ("fix it", None),
        ("", None),
        ("-3", None),
        ("1-x", None),
        ("1-2-3", None),
        ("²", None),
        ("١", None),
    ],
)
def test_numbers_and_ranges_are_read(text: str, numbers: tuple[int, ...] | None) -> None:
    assert read_numbers(text) == numbers


@pytest.mark.rule("commands.state")
@every_case("text", ["0", "012", "7-5", "1-101", "0-3", "9999999999"])
def test_numbers_without_a_possible_task_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_numbers(text)


@pytest.mark.parametrize(
    ("title", "safe"),
    [("Fix the Cache!", "fix_the_cache"), ("../../etc", "etc"), ("日本", "task"), ("a" * 90, "a" * 40)],
)
def test_a_title_becomes_a_safe_part_of_a_path(title: str, safe: str) -> None:
    assert slug(title) == safe
    assert ProjectTask(number=7, title=title).folder == f"007_{safe}"


@pytest.mark.rule("commands.state")
def test_a_claim_whose_answer_was_lost_can_be_repeated() -> None:
    task = begun(ONE, "research", "s1", "then")
    assert begun(task, "research", "s1", "later") == task
    with pytest.raises(TaskBusy, match="cancel session s1") as refused:
        begun(task, "research", "s2", "later")
    assert refused.value.session_id == "s1"


def test_a_task_is_given_back_as_it_stood_unless_it_is_in_other_hands() -> None:
    task = begun(run("research", "completed"), "plan", "s2", "then")
    assert task.work is not None
    given_back = released(task, task.work, "now")
    assert (given_back.status, given_back.work, given_back.history[-1].what) == ("researched", None, "plan released")
    assert released(given_back, task.work, "now") == given_back


@pytest.mark.rule("commands.state")
@pytest.mark.parametrize(
    ("outcome", "status"),
    [("partial", "researched"), ("blocked", "researched"), ("failed", "researched"), ("completed", "planned")],
)
def test_a_session_that_others_came_after_takes_the_task_no_step_back(outcome: str, status: str) -> None:
    task = finished(begun(ONE, "plan", "s1", "then"), "s1", OUTCOMES["partial"], "then")
    task = finished(begun(task, "research", "s2", "then"), "s2", OUTCOMES["completed"], "then")
    assert task.status == "researched"
    task = finished(begun(task, "plan", "s1", "now", 1), "s1", OUTCOMES[outcome], "now")
    assert (task.status, task.question, task.work) == (status, "", None)
    assert [entry.session_id for entry in task.history] == ["s1", "s1", "s2", "s2", "s1", "s1"]


@pytest.mark.rule("commands.state")
def test_the_last_session_goes_on_as_any_other() -> None:
    task = finished(begun(ONE, "plan", "s1", "then"), "s1", OUTCOMES["partial"], "then")
    task = finished(begun(task, "plan", "s1", "now", 1), "s1", OUTCOMES["blocked"], "now")
    assert (task.status, task.question) == ("blocked", "Which one?")
