"""What was approved before a crash counts when somebody goes on; what was refused is not made up for."""

import json
import signal

import pytest
from tests.interfaces.mcp.conftest import entries, talk, turn, until

PARENT = "You work for a person"
LABELS = ("one", "two", "three")


def calls(tool: str) -> dict:
    if tool == "Delegate":
        work = [{"label": label, "prompt": f"work of {label}"} for label in LABELS]
        return {"name": tool, "arguments": {"tasks": work, "concurrency": 3}}
    return {"name": tool, "arguments": {"requests": [{"type": one, "description": f"work of {one}"} for one in LABELS]}}


def script(house, *asks: dict, seconds: float = 0) -> str:
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
def test_children_that_were_approved_before_a_kill_go_on_where_nobody_can_be_asked(house, tool):
    model = script(house, turn("", calls=[calls(tool)]), seconds=60)
    process = house.start("run", "do it", "--yes", "--model", model)
    until(lambda: [entry for entry in entries(house) if entry["parent"] and entry["under_way"]][2:])
    run = killed(house, process)
    script(house, turn("", calls=[calls(tool)]))
    resumed = house.run("resume", run, "--json")
    assert (resumed.returncode, json.loads(resumed.stdout)["report"]) == (0, "all said"), resumed
    assert below(house) == ["completed"] * 3


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize("tool", ["Delegate", "Subtask"])
def test_what_was_refused_before_a_kill_is_not_started_by_whoever_approves_the_rest(house, tool):
    asks = turn("", calls=[calls(tool)])
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
    runs = turn("", calls=[{"name": "Run", "arguments": {"command": "echo begun >> ran; exec sleep 60"}}])
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
    model = script(house, turn("", calls=[calls("Delegate")]))
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
