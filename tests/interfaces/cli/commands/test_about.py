import json
import platform

import pytest

from deputy import __version__
from deputy.interfaces.cli import COMMANDS


def test_the_version_names_python_too(house):
    assert house.run("version").stdout == f"deputy {__version__} (Python {platform.python_version()})\n"
    assert json.loads(house.run("version", "--json").stdout)["version"] == __version__


@pytest.mark.parametrize("words", [(), ("ask",), ("task", "add")])
def test_help_is_the_same_as_the_option(house, words):
    asked = house.run("help", *words)
    assert asked.returncode == 0
    assert asked.stdout == house.run(*words, "--help").stdout


def test_help_as_json_lists_options_and_commands(house):
    form = json.loads(house.run("help", "--json").stdout)
    assert form["commands"] == list(COMMANDS)
    ask = json.loads(house.run("help", "ask", "--json").stdout)
    assert ask["usage"] == "deputy ask [OPTIONS] [QUESTION]"
    assert ["-c", "--continue"] in [one["names"] for one in ask["options"]]


@pytest.mark.parametrize(
    ("words", "said"),
    [(("aks",), "No such command 'aks'. Did you mean ask?"), (("ask", "x"), "deputy ask has no command 'x'.")],
)
def test_help_for_what_is_no_command(house, words, said):
    run = house.run("help", *words)
    assert run.returncode == 2
    assert said in run.stderr
