"""Figures of subtasks: what a suspended parent costs in memory, and how fast templates are registered and matched."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import tracemalloc
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from deputy.agents.templates.template_files import load_templates
from deputy.core.events import RunOpened
from deputy.core.guard import Policy
from deputy.core.model_script import ModelScript, ScriptedCall, ScriptedConversation, ScriptedTurn
from deputy.core.request import Grant, Lineage
from deputy.core.subtask.subtask_request import SubtaskRequest
from deputy.core.subtask.template import Template
from deputy.core.subtask.template_match import TemplateIndex
from deputy.engine.call import RUN
from deputy.models.script_model import ScriptModel
from deputy.options import DeputyOptions
from deputy.wiring import open_runtime

PARENTS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
TEMPLATES = 10_000
MANY = 1_000_000
AT_ONCE = 64
"""How many begin at the same time."""
_LOOKS, _PAUSE_SECONDS = 12, 0.5
"""Every five seconds all runs are looked at, so that some looks fall in between."""


# --- suspended parents ------------------------------------------------------------------------------------------------

_REQUEST = {"type": "look", "description": "Look around.", "context_management": {"fresh_context": "disabled"}}
_SCRIPT = ModelScript(
    conversations=(
        ScriptedConversation(
            turns=(ScriptedTurn(calls=(ScriptedCall(name="Subtask", arguments={"requests": [_REQUEST]}),)),),
            when="You work for a person",
            times=MANY,
        ),
        ScriptedConversation(
            turns=(ScriptedTurn(calls=(ScriptedCall(name="Ask", arguments={"question": "Which way?"}),)),),
            times=MANY,
        ),
    )
)


async def _no_answer(question: object) -> bool:
    """Questions are left open: the runtime sends none of them here."""
    return False


async def suspended_parents(folder: Path) -> None:
    """Whole parents, each waiting for a subtask that waits for a person: all of them are in the journal alone."""
    model = ScriptModel(_SCRIPT, name="script:bench")
    ScriptModel.read = classmethod(lambda cls, path: model)  # one script for every open of it
    workspace = folder / "workspace"
    workspace.mkdir()
    options = DeputyOptions(
        workspace=workspace,
        home=folder / "home",
        policy=Policy(max_spawns=MANY, max_live=MANY, max_live_per_provider=MANY),
        approval="granted",
        answer=_no_answer,
    )
    async with open_runtime(options, fsync="off", suspend_seconds=0.0) as runtime:
        idle = len(asyncio.all_tasks())

        async def fewer_than(tasks: int) -> None:
            while len(asyncio.all_tasks()) >= tasks:  # noqa: ASYNC110  nothing tells when a run is put aside
                await asyncio.sleep(0.2)

        async def suspend(count: int) -> None:
            async def some(share: int) -> None:
                for _ in range(share):
                    run = await runtime.engine.new_id()
                    start = RunOpened(
                        lineage=Lineage.root(run),
                        model="script:bench",
                        command=RUN,
                        prompt="Do it.",
                        grant=Grant(tools=frozenset({"Read", "Subtask"})),
                    )
                    await runtime.engine.submit(run, start)
                    await fewer_than(idle + 4 * AT_ONCE)

            async with asyncio.TaskGroup() as group:
                for number in range(AT_ONCE):
                    group.create_task(some(count // AT_ONCE + (number < count % AT_ONCE)))
            await fewer_than(idle + 1)

        await suspend(AT_ONCE)
        gc.collect()
        tracemalloc.start()
        before, resident = tracemalloc.get_traced_memory()[0], _resident()
        began = time.perf_counter()
        await suspend(PARENTS)
        seconds = time.perf_counter() - began
        used = [await _traced() - before for _ in range(_LOOKS)]
        tracemalloc.stop()
        live = [standing for standing in await runtime.journal.unfinished() if standing.state.is_live]
        assert len(live) == 2 * (PARENTS + AT_ONCE), len(live)
    print(
        f"{PARENTS:,} suspended parents, each with a child that waits: "
        f"{min(used) / PARENTS:,.0f} bytes each, child included"
    )
    print(f"  for a moment, while this process looks after all runs: {max(used) / PARENTS:,.0f} bytes each")
    print(f"  resident memory: {(_resident() - resident) / PARENTS:,.0f} bytes each; made in {seconds:,.1f} s")


async def _traced() -> int:
    await asyncio.sleep(_PAUSE_SECONDS)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


# --- templates --------------------------------------------------------------------------------------------------------


def templates(folder: Path) -> None:
    """Ten thousand of them, from files and in an index."""
    chance = Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(4, 9))) for _ in range(3000)]
    made = [
        Template(name=f"t{n:05}", type=chance.choice(words), description=" ".join(chance.choices(words, k=12)))
        for n in range(TEMPLATES)
    ]
    began = time.perf_counter()
    index = TemplateIndex(made)
    registered = time.perf_counter() - began
    requests = [
        SubtaskRequest(type=chance.choice(words), description=" ".join(chance.choices(words, k=10)))
        for _ in range(1000)
    ]
    began = time.perf_counter()
    for request in requests:
        index.match(request)
    matched = (time.perf_counter() - began) / len(requests)
    print(f"{TEMPLATES:,} templates: registered in {registered:.2f} s, matched in {1000 * matched:.2f} ms each")
    place = folder / "project" / ".deputy" / "templates"
    place.mkdir(parents=True)
    for one in made:
        (place / f"{one.name}.md").write_text(f"---\ntype: {one.type}\ndescription: {one.description}\n---\nGo.\n")
    began = time.perf_counter()
    found = load_templates(folder / "project", folder / "nobody")
    print(f"  read from files and checked: {time.perf_counter() - began:.2f} s for {len(found.templates):,}")


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        templates(Path(name))
        asyncio.run(suspended_parents(Path(name)))
