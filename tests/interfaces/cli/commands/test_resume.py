"""`deputy resume`: the options that let a run make progress again."""

import json
import signal

import pytest
from tests.support.command_house import entries, until
from tests.support.scripts import call, talk, turn


@pytest.mark.rule("resume.progress")
def test_the_command_that_a_spent_budget_recommends_continues_the_run(house):
    look = {"calls": [{"name": "Glob", "arguments": {"pattern": "*"}}]}
    model = house.script("m", {"turns": [look, {"text": "Some."}, {"text": "All."}]})
    begun = house.run("delegate", "-t", "a=x", "--budget", "requests=2", "--yes", "--model", model, "--json")
    [some] = json.loads(begun.stdout)["results"]
    command = some["error"]["recommendation"].partition("continue with: deputy ")[2].split()
    assert command == ["resume", some["session_id"], "--budget", "requests=4"]
    done = house.run(*command, "--json")
    assert (done.returncode, json.loads(done.stdout)["report"]) == (0, "All.")


@pytest.mark.rule("resume.progress")
@pytest.mark.rule("errors.once")
def test_after_an_unrecoverable_error_no_resume_is_recommended_and_another_model_continues(house):
    bad = house.script("bad", {"turns": [{"text": "never", "faults": ["bad_api_key"]}]})
    good = house.script("good", {"turns": [{"text": "Done."}]})
    failed = house.run("run", "do", "--yes", "--model", bad)
    assert "Manual intervention required: " in failed.stderr
    assert "deputy resume" not in failed.stderr
    run = json.loads(house.run("ps", "--all", "--json").stdout)["delegations"][0]["session_id"]
    done = house.run("resume", run, "--model", good, "--json")
    assert (done.returncode, json.loads(done.stdout)["report"]) == (0, "Done.")


@pytest.mark.rule("recover")
def test_a_task_that_was_blocked_before_a_kill_is_shown_as_blocked_and_never_as_queued(house):
    asks = talk(turn("", call("Ask", question="Which colour?")), when="alpha", times=9)
    model = house.script("m", asks, talk(turn("never", delay_seconds=60), when="beta", times=9))
    process = house.start("delegate", "-t", "a=alpha", "-t", "b=beta", "--yes", "--model", model)
    until(lambda: {(one["label"], one["status"]) for one in entries(house)} >= {("a", "blocked"), ("b", "running")})
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = next(one["session_id"] for one in entries(house) if one["parent"] is None)
    house.script("m", asks, talk(turn("done"), when="beta", times=9))
    resumed = house.run("resume", run)
    lines = resumed.stderr.splitlines()
    shown = [line.split("(")[0].rstrip("0123456789.s ") for line in lines if line.startswith("[")]
    assert shown == ["[a] ? blocked: question", "[b] … thinking", "[b] ✓ completed"], lines
    assert [line for line in lines if line.startswith("total  1 completed, 1 blocked · in=200 out=40")]
    assert resumed.returncode == 4
