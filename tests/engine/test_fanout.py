"""Many children at once, on an engine whose journal takes its time to answer."""

import asyncio
import json
import random

import pytest
from tests.support.house import House
from tests.support.scripts import call, talk, turn

from deputy.core.events import Joined, Requested, RunOpened, Spawned
from deputy.core.model_script import ModelScript
from deputy.core.outcome import Completed, Outcome
from deputy.core.request import Grant, Hop, Lineage
from deputy.core.task import Role, Task, TaskOptions
from deputy.engine.fanout import fan_out, requested_task
from deputy.engine.ports import RunContext
from deputy.runtime.engine import LocalEngine
from deputy.testing import ProviderServer
from deputy.testing.memory_journal import MemoryDisk, MemoryJournal
from deputy.testing.virtual_clock import VirtualWorld, run_in_virtual_time

ROOT = "sess_1_root00"
TASKS = [Task(label=f"task-{number}", prompt="Look.") for number in range(12)]


class UnevenJournal(MemoryJournal):
    """A journal that answers some sooner than others."""

    chance = random.Random(5)

    async def _breathe(self) -> None:
        await asyncio.sleep(self.chance.random())


@pytest.mark.rule("delegate.order")
@pytest.mark.rule("spawn.once")
@pytest.mark.parametrize("label", ["same", "task-{}"])
def test_each_task_has_its_own_result_at_its_own_place_whatever_its_label_is(label: str) -> None:
    tasks = [Task(label=label.format(number), prompt=f"{number}") for number in range(6)]
    found: list[str] = []

    async def flow(run: RunContext, start: RunOpened | Requested) -> Outcome:
        if isinstance(start, Requested):
            # The first task ends last.
            await run.sleep("work", 60 - int(start.request.prompt))
            return Completed(lineage=run.lineage, summary=start.request.prompt)
        results = await fan_out(run, "call", tasks, concurrency=6, model="script:x", grant=Grant())
        found.extend(result.outcome.summary for result in results)
        return Completed(lineage=run.lineage, summary="done")

    async def play() -> None:
        world = VirtualWorld(random.Random(1))
        journal = MemoryJournal(MemoryDisk(), "process", world.now)
        async with LocalEngine(journal, flow, world) as engine:
            await engine.submit(ROOT, RunOpened(lineage=Lineage.root(ROOT)))
            assert (await engine.result(ROOT)).summary == "done"

    run_in_virtual_time(play())
    assert found == [task.prompt for task in tasks]


@pytest.mark.rule("delegate.order")
@pytest.mark.parametrize("concurrency", [1, 4, 12])
def test_children_are_born_in_the_order_of_their_tasks(concurrency: int) -> None:
    async def flow(run: RunContext, start: RunOpened | Requested) -> Outcome:
        lineage = run.state.lineage
        assert lineage is not None
        if isinstance(start, Requested):
            begun.append(start.label)
        else:
            await fan_out(run, "call", TASKS, concurrency=concurrency, model="script:x", grant=Grant())
        return Completed(lineage=lineage, summary="done")

    async def play() -> list[str]:
        world = VirtualWorld(random.Random(1))
        journal = UnevenJournal(MemoryDisk(), "process", world.now, latency=lambda: 0.1)
        async with LocalEngine(journal, flow, world) as engine:
            await engine.submit(ROOT, RunOpened(lineage=Lineage.root(ROOT)))
            await engine.result(ROOT)
        born = [one.event.child for one in await journal.records(ROOT) if isinstance(one.event, Spawned)]
        labels = {state.run: state.label for state in await journal.descendants(ROOT)}
        return [labels[child] for child in born]

    begun: list[str] = []
    in_order = [task.label for task in TASKS]
    assert run_in_virtual_time(play()) == in_order
    assert begun == in_order


@pytest.mark.rule("guard.cycle")
def test_an_agent_that_is_named_by_its_file_is_on_the_path_by_its_own_name() -> None:
    task = Task(label="one", prompt="Look.", agent="reviewer", role=Role(name="code-reviewer"))
    start = requested_task(task, TaskOptions(), "sess_1_child0", Lineage.root(ROOT), Grant(), "script:x")
    assert start.request.target == Hop("code-reviewer", "agent")


@pytest.mark.rule("resume")
def test_reports_that_came_before_a_cancel_reach_the_resumed_parent_once(house: House) -> None:
    tasks = [{"label": label, "prompt": f"Find {label}."} for label in ("gold", "tin")]
    script = ModelScript(
        conversations=(
            talk(turn("Gold is in the cellar."), when="Find gold."),
            talk(turn(faults=("silent",)), when="Find tin."),
            talk(turn("", call("Delegate", tasks=tasks)), turn("Tin is missing."), turn("No more."), when="metals"),
        )
    )

    async def begin_and_cancel() -> str:
        async with house.open() as runtime:
            run = await house.start_parent(runtime, "Which metals are here?")
            while not any(isinstance(one.event, Joined) for one in await runtime.journal.records(run)):
                pass
            await runtime.engine.cancel(run)
            await runtime.engine.result(run)
            return run

    with ProviderServer(script, strict=False) as provider:
        house.use(provider)
        run = asyncio.run(begin_and_cancel())
        assert house.resume(run).report == "Tin is missing."
        assert house.resume(run, "And now?").report == "No more."
    first, second = (json.dumps(one.body) for one in provider.asked if "metals" in one.opening and one.answered)
    assert first.count("Gold is in the cellar.") == second.count("Gold is in the cellar.") == 1
    assert "Delegate again only what is missing." in first
    assert [one.opening.count("Find gold.") for one in provider.asked if "Find gold." in one.opening] == [1]
