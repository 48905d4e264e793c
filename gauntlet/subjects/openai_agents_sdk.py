"""The OpenAI Agents SDK: a parent with an agent as a tool. Runs in an environment of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

TITLE = "OpenAI Agents SDK"
LACKS = {
    "seconds": "a run has no deadline",
    "spawns": "no limit on calls of an agent as a tool",
    "requests": "max_turns counts one agent, not its tree",
    "depth": "no limit of the depth",
    "nesting": "no check for repeated tasks",
    "resume": "a killed run cannot be resumed; durable execution needs Temporal, Restate or DBOS",
    "shell": "a program writes its own executor of commands",
    "evidence": "no check of files that a report names; a program writes its own output guardrail",
    "text_calls": "a call written as text is the answer",
    "approval": "a program gets the arguments and shows them itself",
    "redaction": "a program writes its own output guardrail",
    "huge-output": "a result of a tool is passed on as the program's function returns it",
}


def command(plan: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command of a trial, and its environment."""
    return [plan["python"], "-P", __file__, plan["path"]], {"OPENAI_AGENTS_DISABLE_TRACING": "1"}


def dialect(plan: dict[str, Any]) -> dict[str, Any]:
    """How a model calls its tools."""
    return {
        "delegate": {"name": "worker", "arguments": {"input": "{prompt}"}},
        "read": {"name": "read_file", "arguments": {"path": "{path}"}},
        "explode": {"name": "explode", "arguments": {}},
    }


async def main(plan: dict[str, Any]) -> None:
    """Run the trial, and print what the program gets."""
    from openai import AsyncOpenAI

    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled

    set_tracing_disabled(True)
    client = AsyncOpenAI(
        base_url=f"{plan['url']}/v1", api_key="test-key", **({"timeout": 200} if plan["is_direct"] else {})
    )
    model = OpenAIChatCompletionsModel(model="gpt-4o", openai_client=client)

    @function_tool
    async def read_file(path: str) -> str:
        """Read a file."""
        return (Path(plan["workspace"]) / path).read_text()

    @function_tool
    async def explode() -> str:
        """Fail."""
        raise RuntimeError("the tool failed")

    worker = Agent(name="worker", instructions="Do your task.", model=model, tools=[read_file, explode])
    if plan["is_direct"]:
        starts = (Runner.run(worker, task["prompt"]) for task in plan["tasks"])
        for run in await asyncio.gather(*starts, return_exceptions=True):
            print(repr(run) if isinstance(run, BaseException) else run.final_output)
        return
    as_tool = worker.as_tool("worker", "Does one task.")
    as_tool.timeout_seconds = plan["limits"].get("child_seconds")
    parent = Agent(name="parent", instructions="Delegate.", model=model, tools=[as_tool])
    result = await Runner.run(parent, plan["prompt"])
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
