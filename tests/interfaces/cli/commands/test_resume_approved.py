"""What was approved before a crash counts after a resume; what was refused stays refused."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import command_house
from tests.support.command_house import entries, until
from tests.support.scripts import call, talk, turn

from deputy.core.model_script import ScriptedCall, ScriptedTurn

PARENT = "You work for a person"
LABELS = ("one", "two", "three")


def calls(tool: str) -> ScriptedCall:
    if tool == "Delegate":
        work = [{"label": label, "prompt": f"work of {label}"} for label in LABELS]
        return call(tool, tasks=work, concurrency=3)
    return call(tool, requests=[{"type": one, "description": f"work of {one}"} for one in LABELS])


def script(house, *asks: ScriptedTurn, seconds: float = 0) -> str:
    below = [talk(turn(f"done {one}", delay_seconds=seconds), when=f"work of {one}", times=9) for one in LABELS]
    return house.script("m", talk(*asks, turn("all said"), when=PARENT, times=9), *below)


def killed(house, process) -> str:
    """End a process in the middle of what it does; its run."""
    process.send_signal(signal.SIGKILL)
    process.wait()
    return next(entry["session_id"] for entry in entries(house) if entry["parent"] is None)


def below(house) -> list[str]:
    return [entry["status"] for entry in entries(house) if entry["parent"] is not None]


@pytest.mark.rule("recover")
@pytest.mark.parametrize("tool", ["Delegate", "Subtask"])
def test_children_that_were_approved_before_a_kill_go_on_without_asking_again(house, tool):
    model = script(house, turn("", calls(tool)), seconds=60)
    process = house.start("run", "do it", "--yes", "--model", model)
    until(lambda: [entry for entry in entries(house) if entry["parent"] and entry["under_way"]][2:])
    run = killed(house, process)
    script(house, turn("", calls(tool)))
    resumed = house.run("resume", run, "--json")
    assert (resumed.returncode, json.loads(resumed.stdout)["report"]) == (0, "all said"), resumed
    assert below(house) == ["completed"] * 3


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize("tool", ["Delegate", "Subtask"])
def test_what_was_refused_before_a_kill_is_not_started_by_approving_the_rest(house, tool):
    asks = turn("", calls(tool))
    model = script(house, asks, turn("never said", delay_seconds=60))
    process = house.start("run", "do it", "--model", model)
    until(lambda: [entry for entry in entries(house) if entry["tool_calls"] == 1 and entry["under_way"]])
    run = killed(house, process)
    script(house, asks)
    resumed = house.run("resume", run, "--yes", "--json")
    assert (resumed.returncode, json.loads(resumed.stdout)["report"]) == (0, "all said"), resumed
    assert below(house) == []


@pytest.mark.rule("recover")
def test_a_command_that_was_under_way_is_not_said_to_have_been_refused(house):
    runs = turn("", call("Run", command="echo begun >> ran; exec sleep 60"))
    model = script(house, runs)
    process = house.start("run", "do it", "--yes", "--model", model)
    until((house.workspace / "ran").exists)
    run = killed(house, process)
    resumed = house.run("resume", run, "--json")
    assert resumed.returncode == 0, resumed
    said = house.run("transcript", run).stdout
    assert "needs approval" not in said
    assert (house.workspace / "ran").read_text() == "begun\n"


@pytest.mark.rule("recover")
@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize(
    ("before", "option", "started"),
    [
        (("approve",), (), ["completed"] * 3),
        (("approve", "--deny"), (), []),
        ((), ("--yes",), ["completed"] * 3),
    ],
)
def test_what_a_killed_run_had_asked_is_answered_from_any_terminal(house, before, option, started):
    model = script(house, turn("", calls("Delegate")))
    terminal = house.terminal("run", "do it", "--model", model)
    terminal.until("Go ahead? [y/N/d]")
    run = killed(house, terminal.process)
    output = house.run("resume", run)
    assert (output.returncode, f"deputy approve {run}" in output.stderr) == (2, True)
    if before:
        assert house.approve(run, *before[1:]).returncode == 0
    resumed = house.run("resume", run, "--json", *option)
    assert (resumed.returncode, json.loads(resumed.stdout)["report"]) == (0, "all said"), resumed
    assert below(house) == started


@pytest.mark.rule("approve.exact")
def test_a_changed_approval_that_is_asked_without_a_terminal_says_what_waits_and_how_to_answer(house):
    (house.workspace / "notes.md").write_text("as approved")
    model = script(house)
    terminal = house.terminal("delegate", "-t", "a=work of one", "--context", "notes.md", "--model", model)
    terminal.until("Go ahead? [y/N/d]")
    run = killed(house, terminal.process)
    assert house.approve(run).returncode == 0
    (house.workspace / "notes.md").write_text("changed since")
    resumed = house.start("resume", run, stderr=subprocess.STDOUT)
    said = resumed.stdout.readline().decode()
    assert said == (
        f"deputy: [delegate] waits for approval: Start 1 subagent: a (risk: medium). To answer: deputy approve {run}\n"
    )
    assert house.approve(run).returncode == 0
    assert b"done one" in resumed.stdout.read()
    assert resumed.wait() == 0


# --- kill -9 between the answer and the approved call -----------------------------------------------------------------

KILLED = Path(__file__).parents[3] / "project_tasks" / "killed.py"
TOOL_CALLS, CALL, CLAIM = "deputy.engine.tool_calls", "deputy.engine.call", "deputy.project_tasks.claim"


def runs(text: str) -> ScriptedTurn:
    return turn("", call("Run", command=f"echo {text} >> ran"))


def killed_after_yes(house, monkeypatch, stage: tuple[str, str, str], *arguments: str) -> str:
    """A command whose process is killed at a stage after a person said yes; its run."""
    with monkeypatch.context() as patched:
        patched.setattr(command_house, "DEPUTY", (sys.executable, str(KILLED), *stage))
        terminal = house.terminal(*arguments)
    terminal.until("Go ahead? [y/N/")
    assert not (house.workspace / "ran").exists()
    terminal.type("y\n")
    assert terminal.end() == -signal.SIGKILL, terminal.text
    return next(entry["session_id"] for entry in entries(house) if entry["parent"] is None)


@pytest.mark.rule("approve.exact")
@pytest.mark.rule("recover")
@pytest.mark.parametrize(
    ("stage", "ran"),
    [
        # The answer is sent, but the run has not taken it.
        (("deputy.interfaces.questions", "_checked", "after"), None),
        ((TOOL_CALLS, "ask_person", "after"), "approved\n"),
        ((TOOL_CALLS, "_approved", "after"), "approved\n"),
        # The call is recorded as begun: whether it had an effect is unknown, so it is not made again.
        ((TOOL_CALLS, "call_tool", "before"), ""),
        ((TOOL_CALLS, "call_tool", "after"), "approved\n"),
    ],
)
def test_a_call_approved_before_a_kill_is_made_once_and_as_it_was_approved(house, monkeypatch, stage, ran):
    model = script(house, runs("approved"))
    run = killed_after_yes(house, monkeypatch, stage, "run", "do it", "--model", model)
    # The model would want something else now; its recorded call is the approved one.
    script(house, runs("changed"))
    if ran is None:
        assert house.run("resume", run).returncode == 2
        assert house.approve(run).returncode == 0
    resumed = house.run("resume", run, "--json")
    assert (resumed.returncode, json.loads(resumed.stdout)["report"]) == (0, "all said"), resumed
    file = house.workspace / "ran"
    assert (file.read_text() if file.exists() else "") == ("approved\n" if ran is None else ran)


@pytest.mark.rule("approve.exact")
@pytest.mark.rule("recover")
@pytest.mark.parametrize(
    "stage", [(CALL, "ask_person", "after"), (CALL, "fan_out", "before"), (CALL, "fan_out", "after")]
)
def test_a_delegation_approved_before_a_kill_is_made_once_and_as_it_was_approved(house, monkeypatch, stage):
    task = {"label": "a", "prompt": "approved work", "tools": ["Run"], "without_asking": ["Run"], "isolation": "none"}
    tasks = house.workspace / "tasks.json"
    tasks.write_text(json.dumps([task]))
    model = house.script("m", talk(runs("approved"), turn("done"), when="approved work", times=9))
    run = killed_after_yes(house, monkeypatch, stage, "delegate", "--tasks", str(tasks), "--model", model)
    tasks.write_text(json.dumps([{**task, "prompt": "changed work"}]))
    resumed = house.run("resume", run, "--json")
    assert resumed.returncode == 0, resumed
    assert below(house) == ["completed"]
    assert (house.workspace / "ran").read_text() == "approved\n"


@pytest.mark.rule("approve.exact")
@pytest.mark.rule("commands.state")
@pytest.mark.parametrize(
    "stage",
    [
        (CALL, "ask_person", "after"),
        ("deputy.engine.dispatch", "_may_start", "after"),
        (CLAIM, "_claimed", "before"),
        (CLAIM, "_claimed", "after"),
    ],
)
def test_a_task_command_approved_before_a_kill_claims_its_task_once(house, tmp_path, monkeypatch, stage):
    house.env["HOME"] = str(tmp_path / "person")
    path = ".deputy/work/001_one/report.md"
    form = {"status": "completed", "summary": "It is done.", "artifacts": [{"type": "research", "path": path}]}
    form["metadata"] = {"session_id": "{session_id}", "agent_type": "researcher"}
    writes = turn("", call("Write", path=path, content="found"))
    model = house.script("m", talk(writes, turn(json.dumps(form)), when="Task: 1\n", times=9))
    run = killed_after_yes(house, monkeypatch, stage, "research", "One", "--model", model)
    resumed = house.run("resume", run, "--json")
    assert (resumed.returncode, json.loads(resumed.stdout)["status"]) == (0, "completed"), resumed
    [task] = json.loads((house.workspace / ".deputy/tasks.json").read_text())["tasks"]
    assert (task["status"], [entry["what"] for entry in task["history"]]) == (
        "researched",
        ["added", "research began", "research ended"],
    )
