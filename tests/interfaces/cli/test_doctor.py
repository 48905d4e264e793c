import json

import pytest
from click.testing import CliRunner

from deputy.interfaces.cli.doctor import command
from deputy.testing import install_fake_programs


def doctor(house, *arguments: str, **env: str):
    unset = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "DEPUTY_MODEL"))
    return CliRunner(env={**unset, **house.env, **env}).invoke(command, arguments)


def test_a_fresh_machine_can_work_and_is_told_what_would_be_better(house):
    run = house.run("doctor")
    assert run.returncode == 0
    assert "✓ model     offline:scout: no key is set, and no model server answers on this machine" in run.stdout
    assert "ANTHROPIC_API_KEY" in run.stdout
    assert "✓ search    ripgrep" in run.stdout
    assert not house.home.exists(), "looking makes nothing"


def test_it_says_which_model_and_why(house):
    form = json.loads(doctor(house, "--json", OPENAI_API_KEY="sk-secret-value").stdout)
    assert (form["ok"], form["model"], form["reason"]) == (True, "openai:gpt-5.2", "OPENAI_API_KEY is set")
    assert "sk-secret-value" not in json.dumps(form)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"DEPUTY_MODEL": "anthropic:claude-sonnet-4-5"}, "It needs a key: set ANTHROPIC_API_KEY"),
        ({"DEPUTY_MODEL": "nonsense"}, "write provider:model"),
        ({"DEPUTY_HOME": "/dev/null"}, "it is not a directory"),
    ],
)
def test_what_must_be_done_first_is_said_and_is_exit_code_one(house, env, said):
    run = doctor(house, **env)
    assert run.exit_code == 1
    assert said in run.stdout


def test_it_says_which_programs_of_other_agents_are_there(house, tmp_path):
    programs = install_fake_programs(tmp_path / "bin")
    programs.play("cursor-agent", (), version="1.0.3")
    form = json.loads(
        doctor(house, "--json", PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin", OPENAI_API_KEY="sk-test").stdout
    )
    found = [check for check in form["checks"] if check["name"] == "programs"]
    assert "claude 2.1.325 (Claude Code) (no login seen), codex codex-cli 0.166.0, gemini" in found[0]["found"]
    assert "cursor-agent is not the program that is meant" in found[1]["found"]
    assert "another program" in found[1]["advice"]
