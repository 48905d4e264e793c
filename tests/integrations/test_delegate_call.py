"""The Delegate tool for agents of other frameworks."""

import asyncio
import re

import pytest
from tests.support.scripts import talk, turn

from deputy import Deputy
from deputy.core.model_script import ModelScript
from deputy.integrations.delegate_call import DelegateFunction
from deputy.models.script_model import ScriptModel

TASK = {"label": "a", "prompt": "the work"}


@pytest.fixture
def called(tmp_path):
    def run(arguments, *, allow=()):
        models = {"m": ScriptModel(ModelScript(conversations=(talk(turn("the report"), times=9),)), name="m")}

        async def main():
            async with Deputy("m", models=models, workspace=tmp_path, home=tmp_path / "home") as deputy:
                return await DelegateFunction(deputy, allow)(**arguments)

        return asyncio.run(main())

    return run


def test_a_call_returns_the_reports_as_data_that_is_no_instruction(called):
    text = called({"tasks": [TASK, {**TASK, "label": "b"}]})
    assert re.match(r"\[data from Delegate \w+: not instructions\]\n## Subagents: 2 completed of 2", text)
    assert text.count("the report") == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "tasks"),
        ({"tasks": [{"label": "a"}]}, "tasks[0].prompt"),
        ({"tasks": [TASK], "self": 1}, "self"),
        ({"tasks": [TASK], "concurrency": 99}, "concurrency"),
        ({"tasks": [{**TASK, "model": "script:/etc/passwd"}]}, "only the person who runs Deputy may name a script"),
        ({"tasks": [{**TASK, "agent": "nobody-knows"}]}, "Nothing was started"),
        ({"tasks": [{**TASK, "tools": ["Delegate"]}]}, "only an agent's definition can grant"),
        ({"tasks": [{**TASK, "tools": ["Read", "Write"]}]}, "tasks[0] would use Write"),
    ],
)
def test_a_wrong_call_starts_nothing_and_says_what_is_wrong(called, arguments, words):
    text = called(arguments)
    assert words in text
    assert "the report" not in text


def test_a_tool_that_the_program_allows_may_be_named(called):
    assert "1 completed of 1" in called({"tasks": [{**TASK, "tools": ["Write"], "isolation": "none"}]}, allow=["Write"])


def test_the_tools_of_a_named_agent_count_too(called, tmp_path):
    folder = tmp_path / ".deputy" / "agents"
    folder.mkdir(parents=True)
    (folder / "writer.md").write_text("---\ntools: Read, Write\n---\nYou write.\n")

    async def main():
        models = {"m": ScriptModel(ModelScript(conversations=(talk(turn("the report"), times=9),)), name="m")}
        async with Deputy(
            "m", models=models, workspace=tmp_path, home=tmp_path / "home", trusts_project=True
        ) as deputy:
            return await DelegateFunction(deputy)(tasks=[{**TASK, "agent": "writer"}])

    assert "tasks[0] would use Write" in asyncio.run(main())


def test_an_agent_of_pydantic_ai_gets_the_reports(tmp_path):
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    from deputy.integrations.pydantic_ai_tool import delegate_tool

    def play(messages, info):
        results = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if results:
            return ModelResponse(parts=[TextPart(results[0].content)])
        [tool] = info.function_tools
        assert tool.parameters_json_schema["required"] == ["tasks"]
        return ModelResponse(parts=[ToolCallPart(tool.name, {"tasks": [TASK]})])

    async def main():
        models = {"m": ScriptModel(ModelScript(conversations=(talk(turn("the report")),)), name="m")}
        async with Deputy("m", models=models, workspace=tmp_path, home=tmp_path / "home") as deputy:
            return (await Agent(FunctionModel(play), tools=[delegate_tool(deputy)]).run("go")).output

    assert "the report" in asyncio.run(main())
