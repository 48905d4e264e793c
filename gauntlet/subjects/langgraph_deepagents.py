"""LangGraph with deepagents: the `task` tool and documented middleware. Runs in its own environment."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

TITLE = "LangGraph + deepagents"
LACKS = {
    "seconds": "a deadline ends a step with an error; what was found is not returned",
    "requests": "ModelCallLimitMiddleware counts one agent, not its tree",
    "nesting": "a subagent has only the subagents that the program built into it; no depth limit, no check for cycles",
    "evidence": "no check of files that a report names",
    "text_calls": "a call written as text is the answer",
    "approval": "a program gets the arguments and shows them itself",
}


def command(plan: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command of a trial, and its environment."""
    return [plan["python"], "-P", __file__, plan["path"]], {"LANGSMITH_TRACING": "false"}


def dialect(plan: dict[str, Any]) -> dict[str, Any]:
    """How a model calls its tools."""
    return {
        "delegate": {"name": "task", "arguments": {"description": "{prompt}", "subagent_type": "worker"}},
        "read": {"name": "read_file", "arguments": {"file_path": "/{path}"}},
        "shell": {"name": "execute", "arguments": {"command": "{command}"}},
        "explode": {"name": "explode", "arguments": {}},
    }


async def main(plan: dict[str, Any]) -> None:
    """Run the trial, and print what the program gets."""
    from deepagents import create_deep_agent
    from deepagents.backends import FilesystemBackend, LocalShellBackend
    from langchain.agents.middleware import PIIMiddleware, ToolCallLimitMiddleware, ToolErrorMiddleware
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    limits, needs = plan["limits"], plan["needs"]
    patient = {"timeout": 200} if plan["is_direct"] else {}
    address = f"{plan['url']}/v1"
    model = ChatOpenAI(model="gpt-4o", base_url=address, api_key="test-key", use_responses_api=False, **patient)
    backend: Any = FilesystemBackend(root_dir=plan["workspace"], virtual_mode=True)
    if "shell" in needs:
        timeout = int(limits.get("child_seconds", 120))
        backend = LocalShellBackend(root_dir=plan["workspace"], virtual_mode=True, timeout=timeout)

    def explode() -> str:
        """Fail."""
        raise RuntimeError("the tool failed")

    def say(error: Exception, request: Any) -> str:
        return f"{request.tool_call['name']} failed: {type(error).__name__}"

    tools = [explode] if "own_tool" in needs else []
    guard = ToolErrorMiddleware(say)
    worker = create_deep_agent(model, tools, backend=backend, middleware=[guard], name="worker")
    if "child_seconds" in limits:
        worker.step_timeout = limits["child_seconds"]
    if plan["is_direct"]:
        inputs = ({"messages": [{"role": "user", "content": task["prompt"]}]} for task in plan["tasks"])
        for run in await asyncio.gather(*map(worker.ainvoke, inputs), return_exceptions=True):
            print(repr(run) if isinstance(run, BaseException) else run["messages"][-1].text)
        return
    more: list[Any] = [guard]
    if "spawns" in limits:
        more.append(ToolCallLimitMiddleware(tool_name="task", run_limit=limits["spawns"]))
    if "redaction" in needs:
        more.append(PIIMiddleware("api_key", detector=r"sk-[\w-]{32,}", strategy="redact", apply_to_output=True))
    subagent = {"name": "worker", "description": "Does one task.", "runnable": worker}
    async with AsyncSqliteSaver.from_conn_string(f"{plan['state']}/checkpoints.db") as saver:
        parent = create_deep_agent(model, subagents=[subagent], backend=backend, middleware=more, checkpointer=saver)
        start = None if plan["is_resumed"] else {"messages": [{"role": "user", "content": plan["prompt"]}]}
        result = await parent.ainvoke(start, {"configurable": {"thread_id": "trial"}})
    print(result["messages"][-1].text)


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
