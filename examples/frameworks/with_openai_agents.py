"""An agent of the OpenAI Agents SDK delegates; a provider's server on this machine plays all models."""

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from agents import Agent, Runner, set_tracing_disabled
from deputy import Deputy
from deputy.integrations.openai_agents_tool import delegate_tool
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
        agent = Agent(name="clerk", model="gpt-5.2", tools=[delegate_tool(deputy)])
        running = Runner.run_streamed(agent, "What does a lamp cost?")
        results = [event.item.output async for event in running.stream_events() if event.type == "run_item_stream_event"
                   and event.item.type == "tool_call_output_item"]  # fmt: skip
        return running.final_output, results


with TemporaryDirectory() as folder, ProviderServer(SCRIPT) as provider:
    os.environ |= provider.environ
    set_tracing_disabled(True)
    answer, [result] = asyncio.run(main(Path(folder)))
print(answer)
assert answer == "It is 19.95."
assert "1 completed of 1" in result
assert "A lamp costs 19.95." in result
