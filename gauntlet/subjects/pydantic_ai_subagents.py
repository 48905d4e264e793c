"""pydantic-ai with the SubAgents of its harness. Runs in an environment of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

TITLE = "pydantic-ai"
LACKS = {
    "seconds": "a run has no deadline",
    "evidence": "no check of files that a report names; a program writes its own output validator",
    "text_calls": "a call written as text is the answer",
    "approval": "a program gets the arguments and shows them itself",
    "renamed-self": "no check for repeated tasks, only a limit of the depth",
    "cycle": "no check for repeated tasks, only a limit of the depth",
}


def command(plan: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command of a trial, and its environment."""
    return [plan["python"], "-P", __file__, plan["path"]], {}


def dialect(plan: dict[str, Any]) -> dict[str, Any]:
    """How a model calls its tools."""
    agent = "self" if "nesting" in plan["needs"] else "worker"
    return {
        "delegate": {"name": "delegate_task", "arguments": {"agent_name": agent, "task": "{prompt}"}},
        "read": {"name": "read_file", "arguments": {"path": "{path}"}},
        "shell": {"name": "run_command", "arguments": {"command": "{command}"}},
        "explode": {"name": "explode", "arguments": {}},
    }


async def main(plan: dict[str, Any]) -> None:
    """Run the trial, and print what the program gets."""
    import httpx2
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import LocalWorkspace
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.usage import UsageLimits
    from pydantic_ai_harness import FileSystem, OutputGuardrail, Shell, StepPersistence, SubAgent, SubAgents
    from pydantic_ai_harness.guardrails.detectors import redact_secrets
    from pydantic_ai_harness.step_persistence import FileStepStore, continue_run
    from pydantic_ai_harness.subagents import TaskControl

    limits, needs = plan["limits"], plan["needs"]
    http = httpx2.AsyncClient(timeout=200, limits=httpx2.Limits(max_connections=1000)) if plan["is_direct"] else None
    provider = OpenAIProvider(base_url=f"{plan['url']}/v1", api_key="test-key", http_client=http)
    model = OpenAIChatModel("gpt-4o", provider=provider)
    own: list[Any] = [LocalWorkspace(plan["workspace"]), FileSystem()] if {"read", "shell"} & set(needs) else []
    own += [Shell(default_timeout=limits.get("child_seconds", 30))] if "shell" in needs else []
    worker = Agent(model, name="worker", description="Does one task.", capabilities=own)

    if "own_tool" in needs:

        @worker.tool_plain
        async def explode() -> str:
            """Fail."""
            raise RuntimeError("the tool failed")

    if plan["is_direct"]:
        starts = (worker.run(task["prompt"]) for task in plan["tasks"])
        for run in await asyncio.gather(*starts, return_exceptions=True):
            print(repr(run) if isinstance(run, BaseException) else run.output)
        return
    delegate = SubAgent(worker, timeout_seconds=limits.get("child_seconds"), max_calls=limits.get("spawns"))
    subagents = SubAgents(
        agents=[delegate],
        contain_errors=True,
        include_self="nesting" in needs,
        max_depth=limits.get("depth", 2) + 1,
        # Only children that are managed as tasks inherit the limits of their parent.
        task_control=TaskControl() if "requests" in limits else None,
    )
    store = FileStepStore(Path(plan["state"]))
    more = [StepPersistence(store=store)] if "resume" in needs else []
    more += [OutputGuardrail(guard=redact_secrets)] if "redaction" in needs else []
    workspace = own[:1]
    agent = Agent(model, name="parent", capabilities=[*workspace, subagents, *more])
    usage = UsageLimits(request_limit=limits.get("requests", 200))
    start: dict[str, Any] = {"user_prompt": plan["prompt"]}
    if plan["is_resumed"]:
        before = (await store.list_runs(conversation_id="trial"))[0].run_id
        with suppress(LookupError):  # without a snapshot, the run starts again
            start = {"message_history": await continue_run(store, run_id=before, include_interrupted=True)}
    result = await agent.run(**start, conversation_id="trial", usage_limits=usage)
    print(result.output)


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
