"""`deputy refine` in a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import fork_server

TURNS = {"conversations": [{"when": "An evaluator judges your work", "turns": [{"text": "one"}, {"text": "one two"}]}]}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "script.json").write_text(json.dumps(TURNS))
    check = tmp_path / "check.sh"
    check.write_text('#!/bin/sh\ntest "$(wc -w)" -ge "$1" && exit\necho too short\nexit 1\n')
    check.chmod(0o755)
    return tmp_path


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return deputy(project, "refine", *arguments)


def deputy(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run(
        [sys.executable, "-m", "deputy", *arguments],
        cwd=project,
        env={**os.environ, "DEPUTY_HOME": str(project / "home"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.rule("refine")
def test_all_after_the_option_is_the_script_and_the_rounds_are_reported(project: Path):
    done = run(project, "Count.", "--model", "script:script.json", "--evaluator-script", "./check.sh", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("## Refinement: accepted after 2 rounds\n\n### Round 1 ✗ not accepted\n\ntoo short")
    assert done.stdout.endswith("## Best: round 2\n\none two\n")


@pytest.mark.rule("resume")
def test_a_loop_that_was_not_accepted_goes_on_by_resume(project: Path):
    one = run(
        project,
        "Count.",
        "--model",
        "script:script.json",
        "--rounds",
        "1",
        "--json",
        "--evaluator-script",
        "./check.sh",
        "2",
    )
    session_id = json.loads(one.stdout)["outcome"]["session_id"]
    done = deputy(project, "resume", session_id, "--answer", "Two words, please.", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["report"] == "one two"


@pytest.mark.rule("refine")
def test_json_has_every_round_and_an_end_that_is_not_accepted_is_partial(project: Path):
    done = run(
        project,
        "Count.",
        "--model",
        "script:script.json",
        "--rounds",
        "1",
        "--json",
        "--evaluator-script",
        "./check.sh",
        "9",
    )
    assert done.returncode == 4
    data = json.loads(done.stdout)
    assert (data["ending"], data["best"], data["outcome"]["status"]) == ("limit", 1, "partial")
    assert data["rounds"][0]["evaluation"]["notes"]["script"] == {"stdout": "too short\n", "stderr": "", "exit_code": 1}


def test_a_script_and_criteria_exclude_each_other(project: Path):
    done = run(project, "Count.", "--criteria", "x", "--evaluator-script", "true")
    assert done.returncode == 2
    assert "not both" in done.stderr
    assert run(project, "Count.", "--evaluator-script").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--evaluator-script", "./nowhere"), "evaluator: found './nowhere'; there is no such program"),
        (("--tools", "Read,Nope"), "tools: found 'Nope'; unknown tool"),
    ],
)
def test_what_cannot_work_is_a_usage_error_before_anything_is_spent(
    project: Path, arguments: tuple[str, ...], said: str
):
    done = run(project, "Count.", "--model", "script:script.json", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert deputy(project, "ps", "--all", "--json").stdout == '{\n  "delegations": []\n}\n'


def test_the_budget_and_the_time_limit_are_those_of_all_rounds(project: Path):
    check = ("--evaluator-script", "./check.sh", "9")
    capped = run(project, "Count.", "--model", "script:script.json", "--budget", "requests=1", "--json", *check)
    ended = json.loads(capped.stdout)
    assert (ended["ending"], len(ended["rounds"])) == ("stopped", 1)
    assert ended["outcome"]["errors"][0]["type"] == "budget"
    slow = [{"text": "one"}, {"text": "late", "delay_seconds": 600}, {"text": "Out of time."}]
    (project / "script.json").write_text(json.dumps({"conversations": [{"turns": slow}]}))
    late = run(project, "Count.", "--model", "script:script.json", "--timeout", "6", "--json", *check)
    ended = json.loads(late.stdout)
    assert (ended["ending"], len(ended["rounds"])) == ("stopped", 1), late.stderr
    assert ended["outcome"]["errors"][0]["type"] == "timeout"


@pytest.mark.rule("delegate.cancel")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_it_says_how_to_resume(project: Path, number: int):
    turns = {"conversations": [{"turns": [{"text": "one"}, {"text": "two", "delay_seconds": 600.0}]}]}
    (project / "slow.json").write_text(json.dumps(turns))
    command = ["refine", "Count.", "--model", "script:slow.json", "--events", "events", "--evaluator-script"]
    process = fork_server.Popen(
        [sys.executable, "-m", "deputy", *command, "grep", "-q", "two"],
        cwd=project,
        env={**os.environ, "DEPUTY_HOME": str(project / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    output = ""
    # The director begins once for each round.
    while output.count("thinking") < 2:
        output += process.stderr.readline()
    process.send_signal(number)
    _, rest = process.communicate(timeout=30)
    assert process.returncode == 130
    (session_id,) = set(re.findall("deputy resume (sess_[0-9a-z_]+)", rest))
    (project / "slow.json").write_text(json.dumps({"conversations": [{"turns": [{"text": "one"}, {"text": "two"}]}]}))
    done = deputy(project, "resume", session_id)
    assert (done.returncode, done.stdout) == (0, "two\n"), done.stderr
