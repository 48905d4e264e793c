"""A wall clock that jumps moves no limit, no wait and no duration."""

import random
from collections.abc import Callable

import pytest
from msgspec import structs
from tests.simulation.stage import LocalStage
from tests.support.simulation import draw_scenario
from tests.support.simulation.trial import Trial

from deputy.core.events import Record, RunOpened
from deputy.core.outcome import Completed, Outcome
from deputy.core.request import Lineage, timestamp
from deputy.engine.ports import RunContext
from deputy.runtime.engine import LocalEngine
from deputy.testing.memory_journal import MemoryDisk, MemoryJournal
from deputy.testing.virtual_clock import EPOCH, VirtualWorld, run_in_virtual_time

RUN = "sess_1_run000"


def after_four_seconds(seconds: float) -> Callable[[float], float]:
    return lambda passed: seconds if passed >= 4 else 0.0


def outcome_of(work: float, limit: float, jump: float) -> tuple[Outcome, list[Record]]:
    """A run that works for some time under a limit, while the wall clock jumps."""

    async def flow(run: RunContext, start: RunOpened) -> Outcome:
        await run.sleep("half", 4.0)
        await run.sleep("work", work - 4.0)
        return Completed(lineage=start.lineage, summary="done", duration_seconds=run.now() - run.state.began_clock)

    async def play() -> tuple[Outcome, list[Record]]:
        world = VirtualWorld(random.Random(1), jump=after_four_seconds(jump))
        journal = MemoryJournal(MemoryDisk(), "process", world.now, wall=world.wall)
        async with LocalEngine(journal, flow, world) as engine:
            start = RunOpened(lineage=Lineage.root(RUN, deadline=world.now() + limit), seconds=limit)
            await engine.submit(RUN, start)
            outcome = await engine.result(RUN)
        return outcome, list(await journal.records(RUN))

    return run_in_virtual_time(play())


@pytest.mark.rule("time.clock")
@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_task_of_eight_seconds_completes_within_its_minute(jump: float) -> None:
    outcome, records = outcome_of(8.0, 60.0, jump)
    assert outcome.status == "completed"
    assert outcome.duration_seconds == 8.0
    assert (records[-1].clock, records[-1].at) == (EPOCH + 8, EPOCH + 8 + jump)


@pytest.mark.rule("time.clock")
@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_limit_of_six_seconds_ends_what_would_go_on(jump: float) -> None:
    ended, records = outcome_of(600.0, 6.0, jump)
    undisturbed, expected = outcome_of(600.0, 6.0, 0.0)
    assert (ended.status, ended.errors[0].code) == ("partial", "TIMEOUT")
    assert ended.duration_seconds == undisturbed.duration_seconds
    assert [(one.key, one.clock) for one in records] == [(one.key, one.clock) for one in expected]


@pytest.mark.rule("time.clock")
@pytest.mark.parametrize("seed", range(40))
def test_everything_happens_at_the_same_time_whatever_the_wall_clock_says(seed: int) -> None:
    def played(*, jumps: bool) -> list[tuple[str, str, float]]:
        trial = Trial(structs.replace(draw_scenario(seed)), LocalStage())
        if not jumps:
            trial.world = VirtualWorld(random.Random(f"{seed} world"))
        run_in_virtual_time(trial.play())
        return [(one.key, one.event.kind, one.clock) for kept in trial.disk.records.values() for one in kept]

    assert played(jumps=True) == played(jumps=False)


@pytest.mark.rule("time.clock")
def test_a_deadline_is_shown_by_the_wall_clock() -> None:
    async def flow(run: RunContext, start: RunOpened) -> Outcome:
        assert run.state.lineage is not None
        return Completed(lineage=run.state.lineage, summary="done")

    async def play() -> Outcome:
        world = VirtualWorld(random.Random(1), jump=lambda _: 7200.0)
        journal = MemoryJournal(MemoryDisk(), "process", world.now, wall=world.wall)
        async with LocalEngine(journal, flow, world) as engine:
            await engine.submit(RUN, RunOpened(lineage=Lineage.root(RUN, deadline=world.now() + 60), seconds=60))
            return await engine.result(RUN)

    assert run_in_virtual_time(play()).lineage.deadline_shown == timestamp(EPOCH + 7260)
