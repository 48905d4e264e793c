"""The commands of the how-tos for local servers, against a server that speaks the same protocol."""

import json
import shlex
import tomllib
from pathlib import Path

import pytest
from tests.support.command_house import LOCAL, CommandHouse

from deputy.core.model_script import ScriptedCall, ScriptedTurn
from deputy.models.tool_call_check import CODE_WORD
from deputy.testing import ProviderServer

HOWTO = Path(__file__).parents[2] / "docs/howto"
PAGES = ("ollama", "lm-studio", "llama-cpp", "vllm", "openai-compatible")
TEST = (
    ScriptedTurn(calls=(ScriptedCall(name="Read", arguments={"path": "notes.txt"}),)),
    ScriptedTurn(text=CODE_WORD),
)
ANSWER = (
    ScriptedTurn(calls=(ScriptedCall(name="Grep", arguments={"pattern": "lamp"}),)),
    ScriptedTurn(text="A project about lamps."),
)


def commands(page: str) -> list[list[str]]:
    lines = (HOWTO / f"{page}.md").read_text().splitlines()
    return [shlex.split(line)[1:] for line in map(str.strip, lines) if line.startswith("deputy ")]


@pytest.fixture
def house(tmp_path):
    made = CommandHouse(tmp_path)
    made.env = {**made.env, "HOME": str(tmp_path), "DEPUTY_MODEL": ""}
    yield made
    made.close()


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work_one_after_another(house, page):
    models = ("qwen3", "model", "Qwen/Qwen3-8B")
    asked: list[str] = []
    for arguments in commands(page):
        turns = TEST if arguments[0] == "init" else ANSWER
        with ProviderServer(*turns, models=models, strict=arguments[0] != "models") as server:
            env = {name: server.environ[name] for name in (f"{one}_BASE_URL" for one in LOCAL)}
            config = Path(house.env["HOME"]) / ".config/deputy/config.toml"
            if config.exists() and page == "openai-compatible":
                said = tomllib.loads(config.read_text())["providers"]["gpu"]["base_url"]
                config.write_text(config.read_text().replace(said, f"{server.url}/v1"))
            here = [server.url if word == "http://gpu-box:8000" else word for word in arguments]
            run = house.run(*here, "--json", **env)
            asked += [request.model for request in server.asked]
        assert run.returncode == 0, run.stderr
        if arguments[0] == "ask":
            result = json.loads(run.stdout)
            assert (result["model"], result["report"]) == (arguments[-1], "A project about lamps.")
    assert len(asked) == 4
    assert set(asked) == {arguments[-1].partition(":")[2]}


def test_every_page_is_linked_from_the_overview():
    overview = (HOWTO.parent / "local-models.md").read_text()
    assert [page for page in PAGES if f"(howto/{page}.md)" not in overview] == []
