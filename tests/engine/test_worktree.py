"""Subagents that change something, in worktrees of their own."""

import asyncio
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import structs
from tests.support.house import House, approve
from tests.support.scripts import call, talk, turn

from deputy.core.events import Requested
from deputy.core.outcome import Blocked, Cancelled, Completed, Failed, Outcome, Partial, Rejected
from deputy.core.request import Grant, GrantRequest, Lineage, Request, task_hop
from deputy.core.task import Task, TaskOptions
from deputy.engine.ports import Worktree
from deputy.interfaces.cli import deputy
from deputy.journal.expire import expire_overdue
from deputy.journal.retention import prune_expired, remove_files
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.sqlite.sqlite_store import SqliteStore
from deputy.journal.transcript import files_of, safe_id
from deputy.testing import ProviderServer
from deputy.tools.git_worktrees import GitWorktrees, WorktreeCleanup

WRITE = Task(label="scribe", prompt="Write it.", tools=("Read", "Write"))


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    done = subprocess.run(["git", *identity, *arguments], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def repository(house: House) -> Path:
    git(house.workspace, "init", "--quiet")
    (house.workspace / "a.txt").write_text("first\n")
    git(house.workspace, "add", "--all")
    git(house.workspace, "commit", "--quiet", "-m", "Begin")
    return house.workspace


@pytest.mark.rule("tools.readonly")
def test_a_subagent_that_writes_leaves_a_branch_and_touches_nothing_else(house: House, repository: Path):
    with ProviderServer(turn("", call("Write", path="new.txt", content="hello")), turn("Written.")) as provider:
        house.use(provider)
        outcome = house.one(WRITE)
    assert isinstance(outcome, Completed)
    assert [artifact.path for artifact in outcome.artifacts] == ["new.txt"]
    assert outcome.branch.startswith("deputy/scribe-")
    assert not (repository / "new.txt").exists()
    assert git(repository, "show", f"{outcome.branch}:new.txt") == "hello"
    assert f"**Branch**: {outcome.branch} (changed: new.txt)" in house.whole.report
    output = str(provider.asked[0].body["messages"][0])
    assert outcome.branch in output
    assert "uncommitted changes" not in output


@pytest.mark.rule("tools.readonly")
def test_a_subagent_that_only_reads_needs_none(house: House, repository: Path):
    house.script(talk(turn("", call("Read", path="a.txt")), turn("Read.")))
    outcome = house.one()
    assert (outcome.branch, (house.home / "worktrees").exists()) == ("", False)


@pytest.mark.rule("tools.readonly")
def test_a_worktree_in_which_nothing_changed_is_gone_in_the_end(house: House, repository: Path):
    (repository / "loose.txt").write_text("x")
    with ProviderServer(turn("", call("Read", path="a.txt")), turn("Read.")) as provider:
        house.use(provider)
        outcome = house.one(WRITE)
    assert (outcome.branch, outcome.artifacts) == ("", ())
    assert list((house.home / "worktrees").iterdir()) == []
    assert "uncommitted changes" in str(provider.asked[0].body["messages"][0])


@pytest.mark.rule("tools.readonly")
def test_told_to_work_in_place_it_does(house: House, repository: Path):
    house.script(talk(turn("", call("Write", path="new.txt", content="hello")), turn("Written.")))
    outcome = house.one(Task(label="scribe", prompt="Write it.", tools=("Write",), isolation="none"))
    assert (outcome.branch, outcome.warnings, (repository / "new.txt").read_text()) == ("", (), "hello")


@pytest.mark.rule("tools.readonly")
def test_without_a_repository_it_works_in_place_where_all_is_approved_and_says_so(house: House):
    house.script(talk(turn("", call("Write", path="new.txt", content="hello")), turn("Written.")))
    outcome = house.one(WRITE)
    assert isinstance(outcome, Completed)
    assert outcome.warnings == ("It worked in place, without a worktree: the workspace is not in a git repository.",)


@pytest.mark.rule("tools.readonly")
def test_without_a_repository_and_a_person_to_ask_it_is_refused(house: House):
    house.script()
    outcome = house.one(WRITE, approval="refuse")
    assert isinstance(outcome, Rejected)
    assert (outcome.code, outcome.usage.requests) == ("NO_WORKTREE", 0)


@pytest.mark.rule("tools.readonly")
@pytest.mark.parametrize("answer", [True, False])
def test_without_a_repository_a_person_is_asked(house: House, answer: bool):
    house.script(*([talk(turn("Nothing to do."))] if answer else []))

    async def go():
        async with house.open(approval="ask") as runtime:
            run = await house.begin(runtime, WRITE)
            await house.until(lambda: any(seen.event == "waiting" for seen in house.seen))
            child = next(seen.session_id for seen in house.seen if seen.event == "waiting")
            await approve(runtime, child, "yes" if answer else "no")
            await runtime.engine.result(run)
            return await runtime.engine.outcome(child, 0)

    assert isinstance(asyncio.run(go()), Completed if answer else Rejected)


WRITTEN_AND_AT_WORK = (
    turn("", call("Write", path="new.txt", content="hello")),
    turn("", call("Note", content="Written.")),
    turn("late", delay_seconds=600),
)


@pytest.mark.rule("delegate.cancel")
@pytest.mark.rule("outcome.total")
def test_a_cancelled_subagent_hands_in_what_it_has_changed(house: House, repository: Path):
    house.script(talk(*WRITTEN_AND_AT_WORK), strict=False)

    async def go():
        async with house.open() as runtime:
            run = await house.begin(runtime, WRITE)
            await house.until(lambda: any(seen.event == "note" for seen in house.seen))
            await runtime.engine.cancel(run)
            await runtime.engine.result(run)
            (child,) = await runtime.journal.descendants(run)
            return await runtime.engine.result(child.run)

    outcome = asyncio.run(go())
    assert isinstance(outcome, Cancelled)
    assert [artifact.path for artifact in outcome.artifacts] == ["new.txt"]
    assert git(repository, "show", f"{outcome.branch}:new.txt") == "hello"
    assert (outcome.notes, outcome.warnings) == (("Written.",), ())
    house.script(talk(*WRITTEN_AND_AT_WORK[:2], turn("", call("Read", path="new.txt")), turn("Done.")), strict=False)
    assert house.resume(outcome.session_id).branch == outcome.branch


@pytest.mark.rule("time.partial")
def test_a_subagent_that_is_stopped_late_hands_in_what_it_has_changed(house: House, repository: Path):
    # It does not end by itself: its time is up while a command runs that takes longer.
    command = call("Run", command="echo hello > new.txt; sleep 60")
    house.script(talk(turn("", command)), strict=False)
    outcome = house.one(Task(label="scribe", prompt="Write it.", tools=("Run",), timeout=2))
    assert isinstance(outcome, Partial)
    assert [artifact.path for artifact in outcome.artifacts] == ["new.txt"]
    assert git(repository, "show", f"{outcome.branch}:new.txt") == "hello\n"


@pytest.mark.rule("time.partial")
def test_a_subagent_whose_time_ran_out_without_a_process_says_where_its_changes_are(house: House, repository: Path):
    house.script(talk(*WRITTEN_AND_AT_WORK), strict=False)

    async def begin():
        async with house.open() as runtime:
            run = await house.begin(runtime, structs.replace(WRITE, timeout=60))
            await house.until(lambda: any(seen.event == "note" for seen in house.seen))
            return await runtime.journal.descendants(run)

    (child,) = asyncio.run(begin())
    expire_overdue(SqliteStore(house.home), [child])
    with SqliteQueries.open(house.home) as reader:
        state = reader.state(child.run)
        outcome = reader.outcome(state)
    (place,) = (path for path in (house.home / "worktrees").iterdir() if path.is_dir())
    assert isinstance(outcome, Partial)
    assert outcome.branch == git(place, "branch", "--show-current").strip()
    assert outcome.warnings == (f"Its changes are in {place}, not committed to its branch.",)


@pytest.mark.rule("tools.readonly")
@pytest.mark.rule("subtask.flow")
def test_the_subtasks_of_a_subagent_see_its_worktree(house: House, repository: Path):
    asked = {"type": "check", "description": "Check the text.", "file_paths": ["new.txt"]}
    house.script(
        talk(
            turn("", call("Write", path="new.txt", content="hello")),
            turn("", call("Subtask", requests=[asked])),
            turn("Done."),
            when="Write it.",
        ),
        talk(turn("", call("Read", path="new.txt"), call("Glob", pattern="*.txt")), turn("Checked."), when="Check"),
    )
    outcome = house.one(Task(label="scribe", prompt="Write it.", tools=("Read", "Glob", "Write", "Subtask")))
    assert isinstance(outcome, Completed)
    with SqliteQueries.open(house.home) as reader:
        (child,) = reader.children(outcome.session_id)
    read, listed = house.results_of(child.run)
    assert "hello" in read
    assert "new.txt" in listed
    assert not (repository / "new.txt").exists()


@pytest.mark.rule("resume")
def test_a_resumed_subagent_goes_on_in_its_worktree(house: House, repository: Path):
    house.script(
        talk(
            turn("", call("Write", path="new.txt", content="hello")),
            turn("Which?\n[AWAITING_HUMAN_INPUT]"),
            turn("", call("Read", path="new.txt")),
            turn("", call("Write", path="more.txt", content="more")),
            turn("Done."),
        )
    )
    outcome = house.one(WRITE)
    assert isinstance(outcome, Blocked)
    resumed = house.resume(outcome.session_id, "this one")
    assert isinstance(resumed, Completed)
    assert resumed.branch == outcome.branch
    assert {artifact.path for artifact in resumed.artifacts} == {"new.txt", "more.txt"}
    assert git(repository, "show", f"{resumed.branch}:new.txt") == "hello"


@pytest.mark.rule("recover")
def test_a_subagent_whose_process_went_goes_on_in_the_same_worktree(house: House, repository: Path):
    work = (turn("", call("Write", path="new.txt", content="hello")), turn("", call("Note", content="Written.")))
    house.script(talk(*work, turn("late", delay_seconds=600)), strict=False)

    async def begin():
        async with house.open() as runtime:
            await house.begin(runtime, WRITE)
            await house.until(lambda: any(seen.event == "note" for seen in house.seen))
            (place,) = (path for path in (house.home / "worktrees").iterdir() if path.is_dir())
            return place, (place / "new.txt").read_text()

    place, written = asyncio.run(begin())
    assert written == "hello"
    child = next(seen.session_id for seen in house.seen if seen.event == "started")
    house.script(talk(*work, turn("Done.")), strict=False)

    async def go_on():
        async with house.open() as runtime:
            await runtime.engine.ensure_running(child)
            return await runtime.engine.result(child)

    outcome = asyncio.run(go_on())
    assert isinstance(outcome, Completed), outcome
    assert [artifact.path for artifact in outcome.artifacts] == ["new.txt"]
    assert git(repository, "show", f"{outcome.branch}:new.txt") == "hello"
    assert place.is_dir()


@pytest.mark.rule("time.partial")
def test_what_was_done_until_a_timeout_is_on_the_branch(house: House, repository: Path):
    house.script(
        talk(turn("", call("Write", path="new.txt", content="hello")), turn("never", delay_seconds=60)), strict=False
    )
    outcome = house.one(Task(label="scribe", prompt="Write it.", tools=("Write",), timeout=3.0))
    assert isinstance(outcome, Partial)
    assert git(repository, "show", f"{outcome.branch}:new.txt") == "hello"


@pytest.mark.rule("disk")
def test_a_run_that_is_pruned_takes_its_worktree_with_it(house: House, repository: Path):
    house.script(talk(turn("", call("Write", path="new.txt", content="hello")), turn("Done.")))
    outcome = house.one(WRITE)
    remove_files(house.home, [outcome.session_id])
    assert list((house.home / "worktrees").iterdir()) == []
    assert git(repository, "show", f"{outcome.branch}:new.txt") == "hello"


def hand_over(house: House, outcome: Outcome) -> None:
    async def deliver() -> None:
        async with SqliteJournal(house.home) as journal:
            await journal.deliver(outcome.lineage.root_id, "somebody")

    asyncio.run(deliver())


@pytest.mark.rule("disk")
@pytest.mark.parametrize("left", ["build/out.bin", "loose.txt", "a.txt"])
def test_work_that_is_in_no_commit_outlives_the_run_until_it_is_removed(
    house: House, repository: Path, monkeypatch: pytest.MonkeyPatch, left: str
):
    (repository / ".git" / "info" / "exclude").write_text("build\n__pycache__\n")
    house.script(talk(turn("", call("Write", path="new.txt", content="hello")), turn("Done.")))
    outcome = house.one(WRITE)
    hand_over(house, outcome)
    place = house.home.resolve() / "worktrees" / outcome.session_id
    (place / left).parent.mkdir(exist_ok=True)
    (place / left).write_text("work")
    monkeypatch.setenv("DEPUTY_HOME", str(house.home.resolve()))
    assert prune_expired(SqliteStore(house.home), time.time() + 60, 0.0, WorktreeCleanup(os.environ)) == 1
    assert files_of(house.home, outcome.session_id) == [], "only the worktree stays"
    for wish in (("--dry-run",), ()):
        output = CliRunner().invoke(deputy, ["prune", "--older-than", "0s", *wish], catch_exceptions=False)
        assert "emove" in output.stderr
        assert f"Kept (--with-work removes it): {place} has uncommitted work." in output.stderr
        assert (place / left).read_text() == "work"
    output = CliRunner().invoke(deputy, ["prune", "--older-than", "0s", "--with-work"], catch_exceptions=False)
    assert f"Removed: {place} has uncommitted work" in output.stderr
    assert list((house.home / "worktrees").iterdir()) == []
    git(repository, "switch", "--quiet", outcome.branch)
    assert (repository / "new.txt").read_text() == "hello"


@pytest.mark.rule("disk")
def test_a_run_that_may_go_names_its_work_before_it_goes(
    house: House, repository: Path, monkeypatch: pytest.MonkeyPatch
):
    house.script(talk(turn("", call("Write", path="new.txt", content="hello")), turn("Done.")))
    outcome = house.one(WRITE)
    place = house.home.resolve() / "worktrees" / outcome.session_id
    (place / "loose.txt").write_text("work")
    monkeypatch.setenv("DEPUTY_HOME", str(house.home.resolve()))
    output = CliRunner().invoke(deputy, ["prune", "--older-than", "0s", "--dry-run"], catch_exceptions=False)
    assert f"Kept (--with-work removes it): {place} has uncommitted work" in output.stderr
    output = CliRunner().invoke(deputy, ["prune", "--older-than", "1h", "--with-work"], catch_exceptions=False)
    assert "Removed 0 runs" in output.stderr
    assert (place / "loose.txt").exists(), "its run is not that old, and stays too"


@pytest.mark.rule("disk")
def test_where_git_hangs_at_start_up_worktrees_stay_and_are_seen_to_later(
    house: House, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    house.script(talk(turn("", call("Write", path="new.txt", content="hello")), turn("Done.")))
    outcome = house.one(WRITE)
    hand_over(house, outcome)
    place = house.home / "worktrees" / outcome.session_id
    (tmp_path / "hangs").mkdir()
    (tmp_path / "hangs" / "git").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "hangs" / "git").chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path / "hangs"), prepend=os.pathsep)
        assert prune_expired(SqliteStore(house.home), time.time() + 60, 0.0, WorktreeCleanup(os.environ, 0.2)) == 1
    assert place.is_dir()
    monkeypatch.setenv("DEPUTY_HOME", str(house.home))
    output = CliRunner().invoke(deputy, ["prune", "--older-than", "0s"], catch_exceptions=False)
    assert "has uncommitted work" not in output.stderr
    assert list((house.home / "worktrees").iterdir()) == []


@pytest.mark.rule("disk")
@pytest.mark.parametrize("ignored", ["__pycache__\n*.pyc\n", ""])
def test_a_worktree_with_nothing_but_commits_and_caches_goes_and_frees_its_branch(
    house: House, repository: Path, ignored: str
):
    (repository / ".git" / "info" / "exclude").write_text(ignored)
    house.script(talk(turn("", call("Write", path="new.txt", content="hello")), turn("Done.")))
    outcome = house.one(WRITE)
    hand_over(house, outcome)
    place = house.home / "worktrees" / outcome.session_id
    (place / "__pycache__").mkdir()
    (place / "__pycache__" / "a.pyc").write_bytes(b"x")
    assert prune_expired(SqliteStore(house.home), time.time() + 60, 0.0, WorktreeCleanup(os.environ)) == 1
    assert not place.exists()
    git(repository, "branch", "-D", outcome.branch)


@pytest.mark.rule("contract.evidence")
def test_evidence_is_looked_for_in_the_worktree(house: House, repository: Path):
    async def go():
        async with house.open() as runtime:
            run = await runtime.engine.new_id()
            place = (house.home / "worktrees" / run).resolve()
            artifacts = [{"type": "report", "path": "new.txt"}, {"type": "report", "path": f"{place}/more.txt"}]
            metadata = {"session_id": run, "agent_type": "scribe"}
            form = {"status": "completed", "summary": "Done.", "artifacts": artifacts, "metadata": metadata}
            writes = [call("Write", path=name, content="x") for name in ("new.txt", "more.txt")]
            house.script(talk(turn("", *writes), turn(json.dumps(form))))
            tools = frozenset({"Write"})
            request = Request(
                session_id=run,
                target=task_hop("scribe"),
                prompt="Write.",
                caller=Lineage.root("sess_1_caller"),
                caller_grant=Grant(tools=tools),
                wanted=GrantRequest(tools=tools),
            )
            options = TaskOptions(return_format="json", kind="implement")
            await runtime.engine.submit(
                run, Requested(request=request, label="scribe", model=house.model, options=options)
            )
            return await runtime.engine.result(run)

    outcome = asyncio.run(go())
    assert isinstance(outcome, Completed), outcome
    assert "new.txt" in [artifact.path for artifact in outcome.artifacts]


@pytest.mark.rule("workspace.errors")
def test_a_run_whose_worktree_is_on_another_machine_fails_with_what_to_do(house: House, repository: Path):
    class Elsewhere(GitWorktrees):
        async def restore(self, run: str, place: Worktree) -> Worktree:
            return await super().restore(run, structs.replace(place, folder="/elsewhere/worktrees/1"))

    async def go() -> Outcome:
        async with house.open() as runtime:
            runtime.services.worktrees = Elsewhere(house.home / "worktrees", repository, os.environ, safe_id)
            run = await house.begin(runtime, WRITE)
            await runtime.engine.result(run)
            (state,) = await runtime.journal.descendants(run)
            return await runtime.engine.outcome(state.run, state.round)

    house.script()
    outcome = asyncio.run(go())
    assert isinstance(outcome, Failed)
    assert outcome.errors[0].code == "WORKSPACE_MISSING"
    assert "Resume it on the machine that has it" in outcome.errors[0].recommendation
