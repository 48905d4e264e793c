"""kill -9 at the stages of a command, in real processes: no task is ahead of the evidence, and resume completes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands.conftest import Project, returned, turn, write

from deputy.core.project_task import begun
from deputy.journal.reader import Reader
from deputy.journal.registry import listed
from deputy.journal.registry import outcome as outcome_of

REPORT = ".deputy/work/001_cache_the_index/report.md"
FLOW, TAKING, FILE = "deputy.commands.orchestrator", "deputy.commands.taking", "deputy.commands.task_file"
STAGES = [
    (FLOW, "preflight", "after"),
    (FLOW, "route", "after"),
    (FLOW, "register_and_delegate", "before"),
    (FLOW, "register_and_delegate", "after"),
    (TAKING, "_taken", "before"),
    (TAKING, "TaskFile.change", "after"),
    (TAKING, "_take", "after"),
    (FILE, "TaskFile._write", "before"),
    ("deputy.engine.delegate", "_admitted", "after"),
    ("deputy.engine.carrying", "converse", "before"),
    ("deputy.tools.write", "replace_file", "after"),
    ("deputy.engine.carrying", "converse", "after"),
    ("deputy.engine.carrying", "accept", "after"),
    (FLOW, "validated", "after"),
    (FLOW, "clean_up", "before"),
    ("deputy.commands.settling", "settled", "before"),
    ("deputy.commands.settling", "settled", "after"),
    (FLOW, "clean_up", "after"),
]
SAMPLE = STAGES if "DEPUTY_MOMENTS" in os.environ else STAGES[::3]
"""Every third stage; `make kill` tries them all."""

PARTIAL = 4


class Shell:
    """The command line in a project, with an agent that reports in three turns."""

    def __init__(self, project: Project) -> None:
        self.project = project
        turns = [turn("", write(REPORT)), turn(returned("completed", REPORT)), turn(returned("completed", REPORT))]
        self.model = project.script({"turns": turns, "times": 2})
        # Nothing listens on port 9: no test may meet a model server of this machine.
        nobody = {"OLLAMA_BASE_URL": "http://127.0.0.1:9/v1", "LLAMACPP_BASE_URL": "http://127.0.0.1:9/v1"}
        self.env = {**os.environ, **nobody, "DEPUTY_HOME": str(project.home)}

    def __call__(self, *arguments: str, killed_at: tuple[str, str, str] | None = None):
        program = ["-m", "deputy"] if killed_at is None else [str(Path(__file__).with_name("killed.py")), *killed_at]
        return subprocess.run(
            [sys.executable, *program, *arguments],
            cwd=self.project.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def research(self, *options: str, killed_at: tuple[str, str, str] | None = None):
        return self("research", "1", "--yes", "--json", "--model", self.model, *options, killed_at=killed_at)

    def proven(self) -> dict[str, str]:
        """How every run stands, by its id: the status of an outcome only where one is on record."""
        reader = Reader.open(self.project.home)
        if reader is None:
            return {}
        with reader:
            states = [standing.state for standing in listed(reader, ended=100)]
            ends = {state.run: outcome_of(reader, state) for state in states}
        return {run: "live" if end is None else end.status for run, end in ends.items()}


@pytest.mark.rule("commands.state")
@pytest.mark.parametrize("stage", SAMPLE, ids=lambda stage: "-".join((stage[0].rpartition(".")[2], *stage[1:])))
def test_the_task_is_never_ahead_of_the_evidence_and_the_work_completes(project: Project, stage: tuple[str, str, str]):
    project.add()
    shell = Shell(project)
    assert shell.research(killed_at=stage).returncode == -signal.SIGKILL
    task, proven = project.task(), shell.proven()
    assert task.status in ("not started", "in progress") or "completed" in proven.values()
    if task.work is not None:
        assert task.work.session_id in proven
    # Whoever looks settles what has ended, and only that.
    assert shell("task", "list", "--all", "--json").returncode == 0
    if "completed" in proven.values():
        assert (project.task().status, project.task().work) == ("researched", None)
        return
    again = shell("resume", *proven, "--yes", "--json") if proven else shell.research()
    assert again.returncode == 0, again.stderr
    outcome = json.loads(again.stdout)
    assert (outcome["status"], outcome["artifacts"]) == ("completed", [{"type": "research", "path": REPORT}])
    task = project.task()
    assert (task.status, task.artifacts, task.work) == ("researched", (REPORT,), None)
    assert [entry.what for entry in task.history] == ["added", "research began", "research ended"]


@pytest.mark.rule("commands.state")
def test_of_two_at_once_the_second_is_refused_with_the_session_of_the_first(project: Project):
    project.add()
    shell = Shell(project)
    slow = project.script({"turns": [turn("", write(REPORT)), turn("", delay_seconds=600.0)]})
    arguments = ["implement", "1", "--yes", "--events", "-", "--model", slow]
    first = subprocess.Popen(
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
        assert f"it is session {session_id}" in error["message"]
        assert error["recommendation"] == f"Follow it: deputy watch {session_id}"
        assert outcome["task"]["status"] == "in progress"
    finally:
        first.kill()
        first.wait()
        if first.stdout is not None:
            first.stdout.close()
    # Cancelled by whoever looks, it gives the task back as it was.
    assert shell("cancel", session_id).returncode in (0, 130)
    assert shell("task", "show", "1", "--json").returncode == 0
    assert (project.task().status, project.task().work) == ("not started", None)


@pytest.mark.rule("registry.monitor")
@pytest.mark.rule("time.partial")
@pytest.mark.parametrize("looking", [("ps",), ("task", "list"), ("todo",)], ids=" ".join)
def test_whoever_looks_ends_what_is_late_and_settles_its_task(project: Project, looking: tuple[str, ...]):
    project.add()
    shell = Shell(project)
    assert shell.research("--timeout", "1", killed_at=("deputy.engine.carrying", "accept", "before")).returncode < 0
    (session_id,) = shell.proven()
    assert project.task().work is not None
    while project.task().work is not None:
        assert shell(*looking).returncode == 0
    assert shell.proven() == {session_id: "partial"}
    assert (project.task().status, project.task().artifacts) == ("in progress", (REPORT,))
    # It has another second each time, which a busy machine may not finish in.
    while (resumed := shell("resume", session_id, "--yes")).returncode == PARTIAL:
        assert project.task().status == "in progress"
    assert resumed.returncode == 0
    assert project.task().status == "researched"


def test_a_task_of_a_session_that_nobody_here_knows_can_be_given_back(project: Project):
    project.add()
    shell = Shell(project)
    project.tasks.change(1, lambda task: begun(task, "plan", "sess_1_elsewhere", "then"))
    refused = shell.research()
    assert "it is session sess_1_elsewhere" in json.loads(refused.stdout)["errors"][0]["message"]
    released = shell("task", "release", "1")
    assert (released.returncode, released.stdout) == (0, "Released: 1  Cache the index (not started)\n")
    assert shell("task", "release", "1").returncode == 2
    assert shell.research().returncode == 0


def test_a_task_of_a_session_that_can_be_gone_on_with_is_not_given_back(project: Project):
    project.add()
    shell = Shell(project)
    shell.research(killed_at=("deputy.engine.carrying", "converse", "before"))
    refused = shell("task", "release", "1")
    (session_id,) = shell.proven()
    assert refused.returncode == 2
    assert f"deputy resume {session_id}" in refused.stderr
