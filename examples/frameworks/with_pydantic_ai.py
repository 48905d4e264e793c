"""An agent of pydantic-ai delegates: its own test model calls the tool, and Deputy's subagents do the work."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from deputy import Deputy
from deputy.integrations.pydantic_ai_tool import delegate_tool

TASKS = [{"label": "lamp", "prompt": "Which files mention the lamp?"}]


def play(messages, info):
    """Stands for a model: it calls Delegate, and then says what it got."""
    results = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not results:
        return ModelResponse(parts=[ToolCallPart(info.function_tools[0].name, {"tasks": TASKS})])
    return ModelResponse(parts=[TextPart(f"The subagents say: {results[0].content}")])


async def main(folder: Path) -> str:
    (folder / "shop.txt").write_text("one lamp")
    async with Deputy("offline:scout", workspace=folder, home=folder / "home") as deputy:
        agent = Agent(FunctionModel(play), tools=[delegate_tool(deputy)])
        return (await agent.run("Find the lamp.")).output


with TemporaryDirectory() as folder:
    answer = asyncio.run(main(Path(folder)))
print(answer)
assert "1 completed of 1" in answer
assert "shop.txt" in answer
