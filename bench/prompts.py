"""Tokens that a model reads before it works: system prompt and tool definitions, counted by a real tokenizer.

Every prompt is taken from a request on the wire, and counted with o200k_base of the npm package gpt-tokenizer.
The shared part of siblings is the common beginning of their first requests in the order in which providers cache:
tools, system prompt, messages.

usage: python bench/prompts.py FOLDER (with gpt-tokenizer in FOLDER/node_modules)
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from deputy import Deputy, Task
from deputy.core.model_script import ModelScript, ScriptedConversation, ScriptedTurn
from deputy.testing import ProviderServer

GOALS = {"subagent": 1_100, "parent": 2_200, "compact": 700}
GOAL_SHARED = 0.95
TASK = "Where are passwords checked? Name the file and the line."
COUNT = """
import {{ encode }} from '{folder}/node_modules/gpt-tokenizer/esm/encoding/o200k_base.js';
import {{ readFileSync }} from 'node:fs';
console.log(JSON.stringify(JSON.parse(readFileSync(0)).map((text) => encode(text))));
"""


def encoded(texts: list[str], folder: Path) -> list[list[int]]:
    script = folder / "encode.mjs"
    script.write_text(COUNT.format(folder=folder.absolute()))
    made = subprocess.run(["node", script], input=json.dumps(texts), capture_output=True, text=True, check=True)
    return json.loads(made.stdout)


async def requests(kind: str, model: str, workspace: str, prompts: list[str]) -> list[dict]:
    """The first request of each agent."""
    answer = ScriptedConversation(turns=(ScriptedTurn(text="Found it in src/auth.py, line 12."),))
    script = ModelScript(conversations=(answer,) * len(prompts))
    async with ProviderServer(script, strict=False) as provider:
        os.environ |= provider.environ
        async with Deputy(model, workspace=workspace, home=f"{workspace}/home", approval="granted") as deputy:
            if kind == "parent":
                await deputy.run(prompts[0])
            else:
                tasks = [Task(label=f"part-{number}", prompt=prompt) for number, prompt in enumerate(prompts)]
                await deputy.delegate(tasks, concurrency=4)
        asked = [request.body for request in provider.asked]
    firsts = [body for body in asked if not any(message["role"] == "assistant" for message in body["messages"])]
    return firsts[: len(prompts)]


def pieces(body: dict) -> dict[str, str]:
    """The texts of a request that are there before the task, by name."""
    tools = {tool["function"]["name"]: json.dumps(tool) for tool in body["tools"]}
    return {"system": body["messages"][0]["content"], **tools}


def shared(tokens: list[list[int]]) -> int:
    return next((n for n, same in enumerate(zip(*tokens, strict=False)) if len(set(same)) > 1), min(map(len, tokens)))


def main() -> None:
    folder = Path(sys.argv[1])
    for name in ("BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY", "TAVILY_API_KEY", "SEARXNG_URL"):
        os.environ.pop(name, None)
    for kind, model in (("subagent", "openai-chat:m"), ("parent", "openai-chat:m"), ("compact", "llamacpp:m")):
        with tempfile.TemporaryDirectory() as workspace:
            Path(workspace, "notes.md").write_text("# Notes\n")
            [body] = asyncio.run(requests(kind, model, workspace, [TASK]))
        texts = pieces(body)
        sizes = dict(zip(texts, map(len, encoded([*texts.values()], folder)), strict=True))
        total = sum(sizes.values())
        print(f"{kind:10} {total:5,} tokens (goal: at most {GOALS[kind]:,})")
        print(f"           {', '.join(f'{name} {size}' for name, size in sizes.items())}")
    with tempfile.TemporaryDirectory() as workspace:
        prompts = [f"{TASK} Look at part {number}." for number in range(3)]
        bodies = asyncio.run(requests("subagent", "openai-chat:m", workspace, prompts))
    fixed = ["".join(reversed(pieces(body).values())) for body in bodies]
    whole = [before + body["messages"][1]["content"] for before, body in zip(fixed, bodies, strict=True)]
    for what, texts in (
        (f"system prompt and tools (goal: at least {GOAL_SHARED:.0%})", fixed),
        ("whole first request", whole),
    ):
        tokens = encoded(texts, folder)
        same, most = shared(tokens), max(map(len, tokens))
        print(f"three siblings share {same:,} of {most:,} tokens: {same / most:.1%} of the {what}")
    task, _, run = bodies[0]["messages"][1]["content"].partition("\n\nThis run")
    sizes = [len(one) for one in encoded([task, f"\n\nThis run{run}"], folder)]
    print(f"the rest is their own: the task ({sizes[0]} tokens), then the data of the run ({sizes[1]} tokens)")


if __name__ == "__main__":
    main()
