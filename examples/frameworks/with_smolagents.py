"""An agent of smolagents delegates; a provider's server on this machine plays all models."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from smolagents import OpenAIModel, ToolCallingAgent

from deputy.integrations.smolagents_tool import DelegateTool
from deputy.testing import ModelScript, ProviderServer, ScriptedCall, ScriptedConversation, ScriptedTurn

TASKS = [{"label": "lamp", "prompt": "Read the price list."}]
SCRIPT = ModelScript(
    conversations=(
        ScriptedConversation(turns=(ScriptedTurn(text="A lamp costs 19.95."),), when="Read the price list."),
        ScriptedConversation(
            turns=(
                ScriptedTurn(calls=(ScriptedCall(name="Delegate", arguments={"tasks": TASKS}),)),
                ScriptedTurn(calls=(ScriptedCall(name="final_answer", arguments={"answer": "It is 19.95."}),)),
            )
        ),
    )
)

with TemporaryDirectory() as folder, ProviderServer(SCRIPT) as provider:
    os.environ |= provider.environ
    home = Path(folder) / "home"
    agent = ToolCallingAgent(
        tools=[DelegateTool("openai:gpt-5.2", workspace=folder, home=home, fallback=False)],
        model=OpenAIModel("gpt-5.2"),
        stream_outputs=True,
        verbosity_level=0,
    )
    answer = agent.run("What does a lamp cost?")
    [step, *_] = [step for step in agent.memory.steps if getattr(step, "observations", None)]
print(answer)
assert answer == "It is 19.95."
assert "1 completed of 1" in step.observations
assert "A lamp costs 19.95." in step.observations
