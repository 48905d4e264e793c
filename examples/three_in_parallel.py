"""Three subagents at once, watched while they work; their outcomes stand in the order of the tasks."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from deputy import Deputy, Task

ROOT = Path(__file__).resolve().parent.parent
TASKS = [
    Task(label="guard", prompt="Where are cycles detected?"),
    Task(label="journal", prompt="Where is a lease taken over?"),
    Task(label="web", prompt="Where are private addresses refused?"),
]


async def main() -> None:
    with TemporaryDirectory() as home:
        place = {"workspace": ROOT / "src", "home": Path(home)}
        async with asyncio.TaskGroup() as group, Deputy("offline:scout", **place) as deputy:
            watching = group.create_task(watch(deputy))
            outcomes = await deputy.delegate(TASKS, concurrency=3)
        seen = watching.result()
    for task, outcome in zip(TASKS, outcomes, strict=True):
        print(f"[{task.label}] {outcome.status}: {outcome.usage.input} tokens in, {outcome.duration_seconds:.1f} s")
    assert [outcome.status for outcome in outcomes] == ["completed"] * 3
    assert [outcome.lineage.names[-1] for outcome in outcomes] == ["task:guard", "task:journal", "task:web"]
    assert {event for event, _ in seen} >= {"started", "tool_call", "note", "tokens", "completed"}
    assert {label for _, label in seen} == {"guard", "journal", "web"}


async def watch(deputy: Deputy) -> set[tuple[str, str]]:
    return {(progress.event, progress.label) async for progress in deputy.events()}


asyncio.run(main())
