"""`deputy resume`: the options that let a run make progress again."""

import json

import pytest


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
