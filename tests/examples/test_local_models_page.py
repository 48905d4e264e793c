"""The commands of docs/local-models.md, against a server that speaks the same protocol."""

import json
import shlex
from pathlib import Path

import pytest
from tests.support.command_house import LOCAL, CommandHouse

from deputy.core.model_script import ScriptedTurn
from deputy.testing import ProviderServer

PAGE = (Path(__file__).parents[2] / "docs/local-models.md").read_text()
COMMANDS = [line for line in PAGE.splitlines() if line.startswith("deputy ")]


@pytest.fixture
def house(tmp_path):
    made = CommandHouse(tmp_path)
    yield made
    made.close()


def test_the_page_has_a_command_for_each_server():
    named = [word for line in COMMANDS for word in shlex.split(line) if word.partition(":")[0].upper() in LOCAL]
    assert sorted(name.partition(":")[0].upper() for name in named) == sorted(LOCAL)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_work(house, command):
    with ProviderServer(ScriptedTurn(text="A project about lamps."), models=("qwen3",), strict=False) as server:
        env = {name: server.environ[name] for name in (f"{one}_BASE_URL" for one in LOCAL)}
        run = house.run(*shlex.split(command)[1:], "--json", DEPUTY_MODEL="", **env)
        asked = [request.model for request in server.asked]
    assert run.returncode == 0, run.stderr
    form = json.loads(run.stdout)
    if "doctor" in command:
        assert (form["model"], asked) == ("ollama:qwen3", [])
        return
    [result] = form["results"]
    model = shlex.split(command)[-2]
    assert (result["model"], result["report"]) == (model, "A project about lamps.")
    assert asked == [model.partition(":")[2]]
