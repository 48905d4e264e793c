"""`deputy acp` at its start: the entry for an editor, and what it refuses."""

import json
import sys
from pathlib import Path

import pytest
from tests.support.scripts import call, talk, turn


def test_json_prints_the_entry_for_an_editor_with_the_given_options(house):
    done = house.run("acp", "--json", "--model", "sonnet", "--budget", "0.5", "--tools", "Read,Grep", "--yes")
    assert json.loads(done.stdout)["agent_servers"]["Deputy"] == {
        "type": "custom",
        "command": str(Path(sys.executable).parent / "deputy"),
        "args": ["acp", "--model", "sonnet", "--budget", "cost=0.5", "--tools", "Read,Grep", "--yes"],
        "env": {},
    }


@pytest.mark.parametrize("option", ["--json", "--yes"])
def test_an_unknown_model_is_refused_before_an_editor_starts_it(house, option):
    done = house.run("acp", option, "--model", "sonet")
    assert done.returncode == 2
    assert "agent_servers" not in done.stdout
    assert "--model: found 'sonet'" in done.stderr
    assert "did you mean sonnet" in done.stderr


@pytest.mark.rule("approve.who")
def test_a_run_cannot_start_it_and_so_approve_its_own_calls(house):
    command = f"{sys.executable} -m deputy acp </dev/null; echo code $?"
    script = house.script("nested", talk(turn("", call("Run", command=command)), turn("Done."), when="go"))
    done = house.run("run", "--yes", "--events", "-", "go", DEPUTY_MODEL=script)
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout.splitlines()[0])["session_id"]
    shown = house.run("transcript", run).stdout
    assert "a run cannot approve, answer or extend its own call" in shown, shown
    assert "code 2" in shown
