"""What the files say about a return."""

from __future__ import annotations

import pytest
from tests.support.every_case import every_case

from deputy.core.contract import FileFact, check, weigh_evidence
from deputy.core.contract.evidence import is_kept

STARTED = 1_767_225_600.0
GOOD = FileFact(path="docs/report.md", exists=True, size=10, modified_at=STARTED + 5)


def messages(return_, facts, **options):
    problems = weigh_evidence(return_, facts, **options)
    assert all(problem.rule == "contract.evidence" and problem.remedy for problem in problems)
    return [problem.message for problem in problems]


@pytest.fixture
def completed(made):
    return check(made()).return_


@pytest.mark.rule("contract.evidence")
def test_an_artifact_that_exists_is_not_empty_and_has_changed_bears_a_return_out(completed):
    assert messages(completed, [GOOD], kind="research", started_at=STARTED) == []


@pytest.mark.rule("contract.evidence")
@pytest.mark.parametrize(
    ("fact", "objection"),
    [
        (FileFact(path="docs/report.md", exists=False), "does not exist"),
        (FileFact(path="elsewhere.md", exists=True, size=5), "does not exist"),
        (FileFact(path="docs/report.md", exists=True, size=0, modified_at=STARTED + 1), "is empty"),
        (
            FileFact(path="docs/report.md", exists=True, size=5, modified_at=STARTED - 1),
            "has not changed since before the delegation began",
        ),
        (
            FileFact(path="docs/report.md", exists=True, size=5, modified_at=STARTED + 1, is_touched=False),
            "has not changed since before the delegation began",
        ),
        (FileFact(path="docs/report.md", exists=True, size=5, is_kept=True), "belongs to git or Deputy"),
        (FileFact(path="docs/report.md", exists=True, size=5, is_inside=False), "leads out of the workspace"),
    ],
)
def test_what_the_disk_does_not_show_is_a_problem(completed, fact, objection):
    assert messages(completed, [fact], started_at=STARTED) == [f"Artifact {objection}: docs/report.md"]


@pytest.mark.rule("contract.evidence")
@pytest.mark.parametrize("kind", ["research", "plan", "implement"])
def test_completed_work_without_any_artifact_is_a_phantom(made, kind):
    return_ = check(made(artifacts=[])).return_
    assert messages(return_, [], kind=kind) == [f"phantom {kind}: completed without any artifact"]
    assert messages(return_, None, kind=kind) == [f"phantom {kind}: completed without any artifact"]


@pytest.mark.parametrize("kind", ["review", "revise", "task", None])
def test_other_work_may_leave_nothing_behind(made, kind):
    assert messages(check(made(artifacts=[])).return_, [], kind=kind) == []


@pytest.mark.rule("contract.evidence")
def test_only_what_claims_to_be_completed_has_to_be_borne_out(made):
    error = {"type": "timeout", "message": "m", "recoverable": True, "recommendation": "r"}
    for status in ("partial", "failed", "blocked"):
        return_ = check(made(status=status, errors=[error])).return_
        assert messages(return_, [], kind="research", started_at=STARTED) == []


def test_a_file_stamped_in_the_same_tick_of_the_clock_has_changed(completed):
    fact = FileFact(path="docs/report.md", exists=True, size=1, modified_at=STARTED - 0.004)
    assert messages(completed, [fact], started_at=STARTED) == []


def test_without_a_check_nothing_is_reported(completed):
    assert messages(completed, None, kind="research", started_at=STARTED) == []


def test_every_artifact_is_looked_at(made):
    paths = ["a.md", "b.md", "c.md"]
    return_ = check(made(artifacts=[{"type": "file", "path": path} for path in paths])).return_
    facts = [FileFact(path="b.md", exists=True, size=3), FileFact(path="c.md", exists=True)]
    assert messages(return_, facts) == ["Artifact does not exist: a.md", "Artifact is empty: c.md"]


@every_case(
    ("path", "kept"),
    [
        ("", True),
        (".git", True),
        ("a/.git/config", True),
        ("a/.deputy", True),
        (".deputy/tasks.json", True),
        ("a/.deputy/.tasks.json.tmp", True),
        (".deputy/tasks.lock", True),
        (".deputy/notes.md", False),
        (".deputy/sub/tasks.json", False),
        ("tasks.json", False),
        ("a/b.git", False),
    ],
)
def test_files_of_git_and_deputy_are_no_evidence(path, kept):
    assert is_kept(tuple(filter(None, path.split("/")))) is kept
