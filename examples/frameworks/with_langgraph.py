"""An agent of LangChain, which runs on LangGraph, delegates; a provider's server on this machine plays all models."""

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from deputy import Deputy
from deputy.integrations.langchain_tool import delegate_tool
from deputy.testing import ModelScript, ProviderServer, ScriptedCall, ScriptedConversation, ScriptedTurn

TASKS = [{"label": "lamp", "prompt": "Read the price list."}]
SCRIPT = ModelScript(
    conversations=(
        ScriptedConversation(turns=(ScriptedTurn(text="A lamp costs 19.95."),), when="Read the price list."),
        ScriptedConversation(
            turns=(
                ScriptedTurn(calls=(ScriptedCall(name="Delegate", arguments={"tasks": TASKS}),)),
                ScriptedTurn(text="It is 19.95."),
            )
        ),
    )
)


async def main(folder: Path):
    async with Deputy("openai:gpt-5.2", workspace=folder, home=folder / "home", fallback=False) as deputy:
        agent = create_agent(ChatOpenAI(model="gpt-5.2", streaming=True), tools=[delegate_tool(deputy)])
        return (await agent.ainvoke({"messages": [("user", "What does a lamp cost?")]}))["messages"]


with TemporaryDirectory() as folder, ProviderServer(SCRIPT) as provider:
    os.environ |= provider.environ
    *_, result, answer = asyncio.run(main(Path(folder)))
print(answer.text)
assert answer.text == "It is 19.95."
assert "1 completed of 1" in result.text
assert "A lamp costs 19.95." in result.text
