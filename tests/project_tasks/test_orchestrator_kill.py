"""kill -9 at the stages of a command, in real processes: no task is ahead of the evidence, and resume completes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.project_tasks.conftest import Project, returned, write
from tests.support.fork_server import Popen, run
from tests.support.scripts import talk, turn

from deputy.core.project_task import begun
from deputy.journal.registry import list_runs
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

REPORT, CODE = ".deputy/work/001_cache_the_index/report.md", "code.py"
FLOW = [
    ("deputy.project_tasks.orchestrator", "preflight"),
    ("deputy.project_tasks.orchestrator", "route"),
    ("deputy.project_tasks.orchestrator", "register_and_delegate"),
    ("deputy.journal.sqlite.sqlite_journal", "SqliteJournal.begin"),
    ("deputy.project_tasks.claim", "_claimed"),
    ("deputy.project_tasks.task_file", "TaskFile._write"),
    ("deputy.project_tasks.claim", "claim_task"),
    ("deputy.engine.delegate", "_admitted"),
    ("deputy.engine.delegate", "open_worktree"),
    ("deputy.engine.attempt", "run_loop"),
    ("deputy.tools.write", "replace_file"),
    ("deputy.engine.attempt", "check_report"),
    ("deputy.engine.validate", "collect_evidence"),
    ("deputy.engine.delegate", "close_worktree"),
    ("deputy.journal.sqlite.sqlite_journal", "SqliteJournal.finish"),
    ("deputy.project_tasks.orchestrator", "validated"),
    ("deputy.project_tasks.orchestrator", "clean_up"),
    ("deputy.journal.sqlite.sqlite_journal", "SqliteJournal.deliver"),
    ("deputy.project_tasks.sync", "finished"),
]
"""The functions that a command passes through, from its arguments to the status of its task."""
WORKTREE = [
    ("deputy.engine.worktree", "_open"),
    ("deputy.tools.git_worktrees", "_make"),
    ("deputy.tools.git_worktrees", "GitWorktrees.close"),
]
"""What one that changes the code passes through besides."""
STAGES = [
    (command, (*function, moment))
    for command, functions in (("research", FLOW), ("implement", [*FLOW, *WORKTREE]))
    for function in functions
    for moment in ("before", "after")
]
SAMPLE = STAGES if "DEPUTY_MOMENTS" in os.environ else STAGES[::14]
"""Some of the stages; `make kill` tries them all."""
WRITING = ("deputy.tools.write", "replace_file", "before")
ENDS = {"research": ("researched", REPORT), "implement": ("completed", CODE)}


def named(value: object) -> str:
    return "-".join((value[0].rpartition(".")[2], *value[1:])) if isinstance(value, tuple) else str(value)


PARTIAL = 4


class Shell:
    """The command line in a project, with an agent that writes a file and returns it."""

    def __init__(self, project: Project, path: str = REPORT) -> None:
        self.project = project
        # Where the call that writes is lost, nothing is there, and it is sent back to write once more.
        done = turn(returned("completed", path))
        turns = [turn("", write(path)), done, turn("", write(path)), *[done] * 20]
        self.model = project.script(talk(*turns, times=2))
        # Nothing listens on port 9: no test may meet a model server of this machine.
        unreachable = {"OLLAMA_BASE_URL": "http://127.0.0.1:9/v1", "LLAMACPP_BASE_URL": "http://127.0.0.1:9/v1"}
        self.env = {**os.environ, **unreachable, "DEPUTY_HOME": str(project.home)}

    def __call__(self, *arguments: str, killed_at: tuple[str, str, str] | None = None):
        program = ["-m", "deputy"] if killed_at is None else [str(Path(__file__).with_name("killed.py")), *killed_at]
        return run(
            [sys.executable, *program, *arguments],
            cwd=self.project.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-m", "deputy", *arguments]
        return Popen(program, cwd=self.project.folder, env=self.env, stdout=subprocess.DEVNULL)

    def research(self, *options: str, killed_at: tuple[str, str, str] | None = None):
        return self.order("research", *options, killed_at=killed_at)

    def order(self, command: str, *options: str, killed_at: tuple[str, str, str] | None = None):
        return self(command, "1", "--yes", "--json", "--model", self.model, *options, killed_at=killed_at)

    def proven(self) -> dict[str, str]:
        """How every run stands, by its id: the status of an outcome only where one is on record."""
        reader = SqliteQueries.open(self.project.home)
        if reader is None:
            return {}
        with reader:
            states = [standing.state for standing in list_runs(reader, ended=100)]
            ends = {state.run: reader.outcome(state) for state in states}
        return {run: "live" if end is None else end.status for run, end in ends.items()}


@pytest.mark.rule("commands.state")
@pytest.mark.parametrize(("command", "stage"), SAMPLE, ids=named)
def test_the_task_is_never_ahead_of_the_evidence_and_the_work_completes(
    project: Project, command: str, stage: tuple[str, str, str]
):
    project.add()
    status, path = ENDS[command]
    shell = Shell(project, path)
    assert shell.order(command, killed_at=stage).returncode == -signal.SIGKILL
    check(project, shell)
    # The resumed process is killed at the same stage, where it gets there; a return can be put right only once.
    proven = shell.proven()
    if "live" in proven.values() and stage != WRITING:
        again = shell("resume", *proven, "--json", killed_at=stage)
        assert again.returncode in (0, -signal.SIGKILL), again.stderr
        check(project, shell)
    proven = shell.proven()
    if "completed" not in proven.values():
        again = shell("resume", *proven, "--json") if proven else shell.order(command)
        assert again.returncode == 0, again.stderr
        outcome = json.loads(again.stdout)
        assert (outcome["status"], [one["path"] for one in outcome["artifacts"]]) == ("completed", [path])
    # A command that reads settles what has ended, and only that.
    assert shell("task", "list", "--all", "--json").returncode == 0
    task = project.task()
    assert (task.status, task.artifacts, task.work) == (status, (path,), None)
    assert [entry.what for entry in task.history] == ["added", f"{command} began", f"{command} ended"]
    assert list(shell.proven().values()) == ["completed"]
    shown = ["git", "log", "--all", "--format=", "--name-only"]
    committed = subprocess.run(shown, cwd=project.folder, capture_output=True, text=True, check=True).stdout
    assert committed.split() == ([CODE] if command == "implement" else [])


def check(project: Project, shell: Shell) -> None:
    """No more is said of the task than the journal proves."""
    task, proven = project.task(), shell.proven()
    is_proven = "completed" in proven.values()
    assert task.status in ("not started", "in progress") or is_proven
    assert not task.artifacts or is_proven
    assert is_proven or all(entry.what in ("added", "research began", "implement began") for entry in task.history)
    if task.work is not None:
        assert task.work.session_id in proven


@pytest.mark.rule("commands.state")
def test_of_two_at_once_the_second_is_refused_with_the_session_of_the_first(project: Project):
    project.add()
    shell = Shell(project)
    slow = project.script(talk(turn("", write(REPORT)), turn("", delay_seconds=600.0)))
    arguments = ["implement", "1", "--yes", "--events", "-", "--model", slow]
    first = Popen(
        [sys.executable, "-m", "deputy", *arguments],
        cwd=project.folder,
        env=shell.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert first.stdout is not None
        session_id = json.loads(first.stdout.readline())["session_id"]
        while json.loads(first.stdout.readline())["event"] != "started":
            pass
        second = shell("implement", "1", "--yes", "--json", "--model", slow)
        outcome = json.loads(second.stdout)
        (error,) = outcome["errors"]
        assert (second.returncode, outcome["status"], error["code"]) == (6, "rejected", "TASK_BUSY")
        assert f"cancel session {session_id}" in error["message"]
        assert error["recommendation"] == f"Follow it: deputy watch {session_id}"
        assert outcome["task"]["status"] == "in progress"
    finally:
        first.kill()
        first.wait()
        if first.stdout is not None:
            first.stdout.close()
    # Cancelled by a later command, it gives the task back as it was.
    assert shell("cancel", session_id).returncode in (0, 130)
    assert shell("task", "show", "1", "--json").returncode == 0
    assert (project.task().status, project.task().work) == ("not started", None)


@pytest.mark.rule("registry.monitor")
@pytest.mark.rule("time.partial")
@pytest.mark.parametrize("looking", [("ps",), ("task", "list"), ("todo",)], ids=" ".join)
def test_the_next_command_ends_what_is_late_and_settles_its_task(project: Project, looking: tuple[str, ...]):
    project.add()
    shell = Shell(project)
    assert (
        shell.research("--timeout", "1", killed_at=("deputy.engine.attempt", "check_report", "before")).returncode < 0
    )
    (session_id,) = shell.proven()
    assert project.task().work is not None
    while project.task().work is not None:
        # Several look at once, and settle it once.
        lookers = [shell.start(*looking) for _ in range(3)]
        assert [looker.wait(60) for looker in lookers] == [0] * 3
    assert [entry.what for entry in project.task().history] == ["added", "research began", "research ended"]
    assert shell.proven() == {session_id: "partial"}
    assert (project.task().status, project.task().artifacts) == ("in progress", (REPORT,))
    # It has one second again, which a busy machine may spend elsewhere; what is done stays done.
    while (again := shell("resume", session_id)).returncode == PARTIAL:
        assert f"deputy resume {session_id}" in again.stderr
        assert project.task().status == "in progress"
    assert (again.returncode, project.task().status) == (0, "researched"), again.stderr


def test_a_task_of_an_unknown_session_can_be_released(project: Project):
    project.add()
    shell = Shell(project)
    project.tasks.change(1, lambda task: begun(task, "plan", "sess_1_elsewhere", "then"))
    refused = shell.research()
    assert "cancel session sess_1_elsewhere" in json.loads(refused.stdout)["errors"][0]["message"]
    released = shell("task", "release", "1")
    assert (released.returncode, released.stdout) == (0, "Released: 1  Cache the index (not started)\n")
    assert shell("task", "release", "1").returncode == 2
    assert shell.research().returncode == 0


def test_a_task_of_a_session_that_can_be_gone_on_with_is_not_given_back(project: Project):
    project.add()
    shell = Shell(project)
    shell.research(killed_at=("deputy.engine.attempt", "run_loop", "before"))
    refused = shell("task", "release", "1")
    (session_id,) = shell.proven()
    assert refused.returncode == 2
    assert f"deputy resume {session_id}" in refused.stderr
