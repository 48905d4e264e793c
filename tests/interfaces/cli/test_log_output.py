"""Log lines of commands on standard error."""

import json

import pytest

READ = {"name": "Read", "arguments": {"path": "plan.txt"}}


@pytest.fixture
def model(house):
    (house.workspace / "plan.txt").write_text("win\n")
    return house.script("log", {"turns": [{"text": "I read.", "calls": [READ]}, {"text": "Done."}]})


def delegate(model: str) -> tuple[str, ...]:
    return ("delegate", "-t", "a=x", "--yes", "--model", model)


@pytest.mark.parametrize(
    ("options", "env", "levels"),
    [
        ((), {}, set()),
        (("-v",), {}, {"INFO"}),
        (("-vv",), {}, {"INFO", "DEBUG"}),
        (("--log-level", "info"), {}, {"INFO"}),
        ((), {"DEPUTY_LOG": "INFO"}, {"INFO"}),
        (("-v",), {"DEPUTY_LOG": "debug"}, {"INFO", "DEBUG"}),
        (("-vv",), {"DEPUTY_LOG": "error"}, {"INFO", "DEBUG"}),
        ((), {"DEPUTY_LOG": "warning"}, set()),
    ],
)
def test_the_most_detailed_of_the_given_levels_is_logged_to_standard_error(house, model, options, env, levels):
    run = house.run(*options, *delegate(model), "--json", **env)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)
    logged = [line.split() for line in run.stderr.splitlines() if " deputy." in line]
    assert {line[1] for line in logged} == levels
    assert {line[2] for line in logged} == ({"deputy.run:", "deputy.step:"} if levels else set())


def test_an_unknown_level_is_a_usage_error_that_names_the_variable(house):
    run = house.run("ps", DEPUTY_LOG="loud")
    assert run.returncode == 2
    assert "DEPUTY_LOG" in run.stderr


@pytest.mark.parametrize("command", [("delegate", "-t", "a=x"), ("run", "x")])
def test_with_log_lines_a_terminal_gets_plain_lines_and_no_live_table(house, model, command):
    terminal = house.terminal("-v", *command, "--yes", "--model", model)
    assert terminal.end() == 0
    assert " INFO deputy.step: " in terminal.shown
    assert "\x1b[1A" not in terminal.shown
    assert "\x1b[?25l" not in terminal.shown
    assert all(line.index(" INFO deputy.") == 8 for line in terminal.text.splitlines() if " INFO deputy." in line)
